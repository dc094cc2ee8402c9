//! Flags that say which requests a load sends, to which servers, and from which addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_load::input::{curl, har, text, urls};
use drover_load::plan::order::Order;
use drover_load::plan::request::{RequestContent, RequestMethod, RequestTemplate, parse_field};
use drover_load::plan::sources::{LocalPorts, SourceList};
use drover_load::plan::target::Url;
use drover_usage::UsageError;

/// What to ask for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct RequestArgs {
    /// What to ask for, [http://]HOST[:PORT][/PATH]
    ///
    /// The URLs may name several servers; each server then has connections of its own
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
    /// The requests keep their order, methods, header fields and bodies
    #[arg(long = "from-har", value_name = "FILE", conflicts_with_all = ["urls", "list"])]
    #[arg(conflicts_with_all = ["method", "fields", "body"])]
    har: Option<PathBuf>,

    /// Send the request of a curl command line: 'curl URL -H …' in quotes, or @FILE
    ///
    /// Browsers write one with "Copy as cURL (bash)". The head and the body are those that curl sends, without its
    /// User-Agent. Redirects are not followed, and options that are not supported are refused
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["urls", "list", "har"])]
    #[arg(conflicts_with_all = ["method", "fields", "body"])]
    curl: Option<String>,

    /// The order of the URLs: sequential, random, weighted or zipf[:S]
    ///
    /// random: every URL is equally likely. weighted: by the weights of --urls. zipf: the URL at place
    /// k has a probability proportional to 1/k^S; S is 1 if not given [default: sequential; weighted if
    /// --urls has weights]
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
    /// The flag may be given several times
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = parse_field)]
    fields: Vec<String>,

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

fn sources(text: &str) -> Result<SourceList, String> {
    if text.is_empty() { Ok(SourceList::default()) } else { text.parse() }
}

/// The requests, servers and addresses that the flags select.
pub(super) struct RequestSelection {
    pub(super) asked: Vec<RequestTemplate>,
    pub(super) order: Order,
    pub(super) unix: Option<PathBuf>,
    pub(super) sources: SourceList,
}

impl RequestArgs {
    /// # Errors
    /// A [`UsageError`] for files that cannot be read, and for files that contradict the flags.
    pub(super) fn choose(self) -> anyhow::Result<RequestSelection> {
        if let Some(path) = &self.unix {
            check_socket(path)?;
        }
        let target = self.target.as_ref();
        let (asked, weights) = match (&self.har, &self.curl) {
            (Some(file), _) => {
                let text = fs::read(file).map_err(|error| fault("--from-har", file, &error))?;
                let requests = har::parse(&text, target);
                (requests.map_err(|error| fault("--from-har", file, &error))?, None)
            }
            (_, Some(command)) => (vec![read_curl(command, target)?], None),
            _ => self.written_out()?,
        };
        let order = chosen_order(self.order, weights)?;
        Ok(RequestSelection {
            asked,
            order,
            unix: self.unix,
            sources: self.source.with_ports(self.local_ports),
        })
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
            fields: self.fields.clone(),
            body,
            is_whole_head: false,
        });
        let request = |url| RequestTemplate { url, content: Arc::clone(&content) };
        Ok((urls.into_iter().map(request).collect(), weights))
    }
}

/// The request of a curl command line, or of the one in a file.
fn read_curl(command: &str, target: Option<&Url>) -> Result<RequestTemplate, UsageError> {
    let mut read =
        |name: &str| fs::read(name).map_err(|error| format!("cannot read '{name}': {error}"));
    let Some(file) = command.strip_prefix('@') else {
        let request = curl::parse(command, target, &mut read);
        return request.map_err(|error| UsageError::new(format!("--curl: {error}")));
    };
    let request =
        read(file).and_then(|bytes| curl::parse(text::decode(&bytes)?, target, &mut read));
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
