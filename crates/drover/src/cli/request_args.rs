//! Flags that say which requests a load sends, to which servers, and from which addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_load::input::curl::{self, CurlHttp2};
use drover_load::input::har::{self, MissingBody, Recording};
use drover_load::input::{text, urls};
use drover_load::plan::order::Order;
use drover_load::plan::request::{RequestContent, RequestMethod, RequestTemplate, parse_field};
use drover_load::plan::sources::{LocalPorts, SourceList};
use drover_load::plan::target::Url;
use drover_load::warning::Warning;
use drover_usage::UsageError;

use super::tls_args::Http2Wish;

/// What to ask for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct RequestArgs {
    /// What to ask for, [http://|https://]HOST[:PORT][/PATH]
    ///
    /// The URLs may name several servers; each server then has connections of its own
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    #[arg(required_unless_present_any = ["list", "har", "curl", "merge"], value_name = "URL")]
    #[arg(help_heading = None)]
    urls: Vec<String>,

    /// Ask for the URLs of a file
    ///
    /// One URL per line. A weight may follow the URL (1 if there is no weight)
    #[arg(long = "urls", value_name = "FILE", conflicts_with = "urls")]
    list: Option<PathBuf>,

    /// Send the requests that a browser has recorded (HAR)
    ///
    /// The requests keep their order, methods, header fields and bodies. An entry that cannot be sent is left out with a
    /// warning
    #[arg(long = "from-har", value_name = "FILE", conflicts_with_all = ["urls", "list"])]
    #[arg(conflicts_with_all = ["method", "body"])]
    har: Option<PathBuf>,

    /// What to do with requests of --from-har whose bodies were not recorded: skip or empty [default: fail]
    ///
    /// Browsers do not record files and long bodies. skip: leave these requests out. empty: send them without a body.
    /// Each is named in a warning
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "HOW", value_parser = missing_body())]
    #[arg(hide_possible_values = true)]
    har_missing: Option<MissingBody>,

    /// Send the request of a curl command line, or of @FILE
    ///
    /// Write the command line in quotes: 'curl URL -H …'. Browsers write one with "Copy as cURL (bash)". The head and the
    /// body are those that curl sends, without its User-Agent. Redirects are not followed, and options that are not
    /// supported are refused
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["urls", "list", "har"])]
    #[arg(conflicts_with_all = ["method", "body"])]
    curl: Option<String>,

    /// The order of the URLs: sequential, random, weighted or zipf[:S]
    ///
    /// random: every URL is equally likely. weighted: by the weights of --urls. zipf: the URL at place
    /// k has a probability proportional to 1/k^S; S is 1 if not given [default: sequential; weighted if
    /// --urls has weights]
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    order: Option<Named>,

    /// Send all requests to this server, whatever server the URLs name
    ///
    /// The URLs may then be paths only
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "URL")]
    target: Option<Url>,

    /// Connect to this unix socket in place of the URLs' hosts
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,

    /// Connect from these addresses in turn: ADDR,ADDR or ADDR/PREFIX
    ///
    /// One address has ports for about 20,000 connections to a server. For servers on 127.0.0.0/8, more
    /// source addresses are used without this flag
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "ADDRS", default_value = "", value_parser = sources)]
    #[arg(hide_default_value = true, conflicts_with = "unix")]
    source: SourceList,

    /// Connect from these source ports only, as a machine with few free ports would
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "FROM-TO", conflicts_with = "unix")]
    local_ports: Option<LocalPorts>,

    /// Method of the requests [default: GET; with --body POST]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<RequestMethod>,

    /// A header field of the requests, 'Name: value'
    ///
    /// The flag may be given several times. It replaces fields of the same name in --curl and --from-har
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = parse_field)]
    fields: Vec<String>,

    /// Host field of the requests [default: host and port of the URL]
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,

    /// A body of the requests: text, or @FILE
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
}

/// The name of an order. The weights are not known yet.
#[derive(Clone, Copy, Debug)]
enum Named {
    Sequential,
    Random,
    Weighted,
    Zipf(f64),
}

fn order(text: &str) -> Result<Named, String> {
    let (name, exponent) = text.split_once(':').map_or((text, None), |(n, e)| (n, Some(e)));
    match (name, exponent) {
        ("sequential", None) => Ok(Named::Sequential),
        ("random", None) => Ok(Named::Random),
        ("weighted", None) => Ok(Named::Weighted),
        ("zipf", exponent) => match exponent.unwrap_or("1").parse() {
            Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(Named::Zipf(exponent)),
            _ => Err("the exponent of zipf is a number from 0 to 10, as in zipf:0.8".to_string()),
        },
        _ => Err("write sequential, random, weighted, zipf or zipf:0.8".to_string()),
    }
}

fn missing_body() -> impl TypedValueParser<Value = MissingBody> {
    PossibleValuesParser::new(["skip", "empty"]).map(|name| match name.as_str() {
        "skip" => MissingBody::Skip,
        _ => MissingBody::Empty,
    })
}

/// Reads the value of a Host field, as a field.
fn host(text: &str) -> Result<String, String> {
    let is_host =
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic() && !b"/?#@".contains(&it));
    match is_host {
        true => parse_field(&format!("Host: {text}")),
        false => {
            Err("write a host name, with a port if it is not 80: example.org:8080".to_string())
        }
    }
}

fn sources(text: &str) -> Result<SourceList, String> {
    if text.is_empty() { Ok(SourceList::default()) } else { text.parse() }
}

/// The requests, servers and addresses that the flags select.
pub(super) struct RequestSelection {
    pub(super) asked: Vec<RequestTemplate>,
    pub(super) order: Order,
    pub(super) unix: Option<PathBuf>,
    pub(super) sources: SourceList,
    /// Whether a request asks for HTTP/2 by itself.
    pub(super) http2: Http2Wish,
    /// What was noticed when the requests were read.
    pub(super) warnings: Vec<Warning>,
}

impl RequestArgs {
    /// # Errors
    /// A [`UsageError`] for files that cannot be read, and for files that contradict the flags.
    pub(super) fn choose(self) -> anyhow::Result<RequestSelection> {
        self.check()?;
        let target = self.target.as_ref();
        let overriding: Vec<String> = self.fields.iter().chain(&self.host).cloned().collect();
        let mut warnings = Vec::new();
        let mut http2 = Http2Wish::default();
        let (mut asked, weights) = match (&self.har, &self.curl) {
            (Some(file), _) => {
                let recording = read_har(file, target, self.har_missing.unwrap_or_default())?;
                warnings = recording.warnings;
                (recording.requests, None)
            }
            (_, Some(command)) => {
                let (request, asked) = read_curl(command, target)?;
                http2 = asked;
                (vec![request], None)
            }
            _ => self.written_out()?,
        };
        if self.har.is_some() || self.curl.is_some() {
            for request in &mut asked {
                Arc::make_mut(&mut request.content).override_fields(&overriding);
            }
        }
        Ok(RequestSelection {
            asked,
            order: chosen_order(self.order, weights)?,
            unix: self.unix,
            sources: self.source.with_ports(self.local_ports),
            http2,
            warnings,
        })
    }

    /// Refuses flags that contradict each other.
    fn check(&self) -> Result<(), UsageError> {
        if let Some(path) = &self.unix {
            check_socket(path)?;
        }
        if self.har_missing.is_some() && self.har.is_none() {
            return Err(UsageError::new("--har-missing is for --from-har FILE"));
        }
        let is_host = |field: &String| {
            field.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case("host"))
        };
        if self.host.is_some() && self.fields.iter().any(is_host) {
            return Err(UsageError::new(
                "--host and --header both set the Host field: leave one out",
            ));
        }
        Ok(())
    }

    /// Requests for URLs, with the method, header fields and body of the flags.
    fn written_out(&self) -> Result<(Vec<RequestTemplate>, Option<Vec<f64>>), UsageError> {
        let target = self.target.as_ref();
        let (urls, weights) = match &self.list {
            Some(file) => {
                let bytes = fs::read(file).map_err(|error| fault("--urls", file, &error))?;
                let list = text::decode(&bytes).and_then(|text| urls::parse(text, target));
                let list = list.map_err(|error| fault("--urls", file, &error))?;
                (list.urls, list.weights)
            }
            None => {
                let urls = self.urls.iter().map(|url| urls::at(url, target));
                let urls: Result<_, _> = urls.collect();
                (urls.map_err(|fault| UsageError::new(format!("URL: {fault}")))?, None)
            }
        };
        let body = self.body.as_deref().map(read_body).transpose()?.unwrap_or_default();
        let method = match &self.method {
            Some(method) => method.clone(),
            None if body.is_empty() => RequestMethod::default(),
            None => "POST".parse().map_err(UsageError::new)?,
        };
        let content = Arc::new(RequestContent {
            method,
            fields: self.host.iter().chain(&self.fields).cloned().collect(),
            body,
            is_whole_head: false,
        });
        let request = |url| RequestTemplate { url, content: Arc::clone(&content) };
        Ok((urls.into_iter().map(request).collect(), weights))
    }
}

/// The requests of a recording, with the file named in each warning.
fn read_har(
    file: &Path,
    target: Option<&Url>,
    missing: MissingBody,
) -> Result<Recording, UsageError> {
    let text = fs::read(file).map_err(|error| fault("--from-har", file, &error))?;
    let recording = har::parse(&text, target, missing);
    let mut recording = recording.map_err(|error| fault("--from-har", file, &error))?;
    for warning in &mut recording.warnings {
        warning.text = format!("--from-har {}: {warning}", file.display());
    }
    Ok(recording)
}

/// The request of a curl command line, or of the one in a file, and whether it asks for HTTP/2.
fn read_curl(
    command: &str,
    target: Option<&Url>,
) -> Result<(RequestTemplate, Http2Wish), UsageError> {
    let mut read =
        |name: &str| fs::read(name).map_err(|error| format!("cannot read '{name}': {error}"));
    let parse = |text: &str, read: &mut text::ReadFile| {
        let request = curl::parse(text, target, read)?;
        let is_https = request.url.is_https();
        // Whoever knows beforehand that a server speaks HTTP/2 need not ask it by an upgrade, which nobody speaks any more.
        let wish = curl::http2(text).map_or(Http2Wish::default(), |asked| Http2Wish {
            by_alpn: is_https || asked == CurlHttp2::Negotiated,
            by_prior_knowledge: !is_https && asked == CurlHttp2::PriorKnowledge,
        });
        Ok((request, wish))
    };
    let Some(file) = command.strip_prefix('@') else {
        let request = parse(command, &mut read);
        return request.map_err(|error: String| UsageError::new(format!("--curl: {error}")));
    };
    let request = read(file).and_then(|bytes| parse(text::decode(&bytes)?, &mut read));
    request.map_err(|error| UsageError::new(format!("--curl @{file}: {error}")))
}

fn fault(flag: &str, file: &Path, fault: &dyn std::fmt::Display) -> UsageError {
    UsageError::new(format!("{flag} {}: {fault}", file.display()))
}

fn chosen_order(named: Option<Named>, weights: Option<Vec<f64>>) -> Result<Order, UsageError> {
    match (named, weights) {
        (None | Some(Named::Weighted), Some(weights)) => Ok(Order::Weighted(weights)),
        (Some(_), Some(_)) => Err(UsageError::new(
            "--order: the list of --urls has weights, which only --order weighted uses: take them \
             out, or choose that",
        )),
        (Some(Named::Weighted), None) => Err(UsageError::new(
            "--order weighted: there are no weights: write one behind each URL of --urls FILE",
        )),
        (None | Some(Named::Sequential), None) => Ok(Order::Sequential),
        (Some(Named::Random), None) => Ok(Order::Random),
        (Some(Named::Zipf(exponent)), None) => Ok(Order::Zipf { exponent }),
    }
}

fn read_body(text: &str) -> Result<Vec<u8>, UsageError> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(file) => fs::read(file).map_err(|error| {
            UsageError::new(format!("--body @{file}: {error}; write a text, or @ and a file"))
        }),
    }
}

/// Refuses a path that cannot be the address of a socket, as a mistake. A path where nobody listens is a result of
/// the run.
fn check_socket(path: &Path) -> Result<(), UsageError> {
    std::os::unix::net::SocketAddr::from_pathname(path).map(drop).map_err(|error| {
        UsageError::new(format!("--unix {}: {error}; give a shorter path", path.display()))
    })
}
