//! Flags for how servers are spoken to: TLS with those of https:// URLs, and HTTP/2.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use drover_load::plan::http2::HttpProtocol;
use drover_load::plan::target::Url;
use drover_load::plan::tls::{SessionResumption, TargetTlsOptions};
use drover_tls::certificate::CertificateFiles;
use drover_tls::client::{ClientIdentity, Trust};
use drover_usage::UsageError;

/// The group of these flags in the help.
const TLS: &str = "TLS";

/// The variable that names a file for the keys of sessions, as for browsers and curl.
const KEY_LOG: &str = "SSLKEYLOGFILE";

/// The group of the flags of HTTP/2 in the help.
const HTTP2: &str = "HTTP/2";

/// The most streams of a connection: no server takes as many.
const STREAMS_MOST: u32 = 100_000;

/// Whether HTTP/2 is spoken with servers.
#[derive(Debug, clap::Args)]
pub(super) struct Http2Args {
    /// Speak HTTP/2 over TLS (ALPN)
    ///
    /// For https:// URLs. A server that does not choose h2 is an error
    #[arg(help_heading = HTTP2)]
    #[arg(long)]
    http2: bool,

    /// Speak HTTP/2 without TLS (prior knowledge)
    ///
    /// For http:// URLs. Nothing is negotiated: the server must expect HTTP/2
    #[arg(help_heading = HTTP2)]
    #[arg(long)]
    h2c: bool,
}

impl Http2Args {
    /// Adds what a request asks for by itself.
    pub(super) fn or(self, asked: Http2Wish) -> Http2Args {
        Http2Args { http2: self.http2 || asked.by_alpn, h2c: self.h2c || asked.by_prior_knowledge }
    }

    /// What is spoken with the servers of `urls`; `streams`: how many requests each connection may have under way.
    ///
    /// # Errors
    /// The flag for the other kind of URLs is missing, or there is a number of streams without HTTP/2.
    pub(super) fn protocol<'u>(
        &self,
        urls: impl IntoIterator<Item = &'u Url>,
        streams: Option<u32>,
    ) -> Result<HttpProtocol, UsageError> {
        if !self.http2 && !self.h2c {
            return match streams {
                None => Ok(HttpProtocol::Http1),
                Some(_) => Err(UsageError::new(
                    "--streams is for HTTP/2: add --http2 (https:// URLs) or --h2c (http:// URLs)",
                )),
            };
        }
        for url in urls {
            match (url.is_https(), self.http2, self.h2c) {
                (false, _, false) => {
                    return Err(UsageError::new(format!(
                        "--http2 is for https:// URLs, and {url} is none: use --h2c, which speaks HTTP/2 without TLS"
                    )));
                }
                (true, false, _) => {
                    return Err(UsageError::new(format!(
                        "--h2c is for http:// URLs, and {url} is none: use --http2, which chooses HTTP/2 by ALPN"
                    )));
                }
                _ => {}
            }
        }
        Ok(HttpProtocol::Http2 { streams: streams.unwrap_or(1) })
    }
}

/// Which HTTP/2 a request asks for by itself, as a command line of curl.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Http2Wish {
    pub(super) by_alpn: bool,
    pub(super) by_prior_knowledge: bool,
}

/// How many requests a connection may have under way.
#[derive(Debug, clap::Args)]
pub(super) struct StreamArgs {
    /// Requests at once on each connection [default: 1]
    ///
    /// With --http2 or --h2c. Each stream gets requests as a connection of HTTP/1.1 does. A server may take fewer streams: a
    /// warning says so
    #[arg(help_heading = HTTP2)]
    #[arg(short = 'm', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MOST)))]
    pub(super) streams: Option<u32>,
}

/// With which TLS servers are spoken to.
#[derive(Debug, clap::Args)]
pub(super) struct TlsArgs {
    /// Trust only the CAs in FILE (PEM)
    ///
    /// Without this flag, the CAs that this machine trusts
    #[arg(help_heading = TLS)]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,

    /// Accept any server certificate
    #[arg(help_heading = TLS)]
    #[arg(short = 'k', long)]
    insecure: bool,

    /// Server name to send and to verify [default: the host of the URL]
    #[arg(help_heading = TLS, hide_short_help = true)]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,

    /// Client certificate for servers that ask for one (PEM, with its chain)
    #[arg(help_heading = TLS, hide_short_help = true)]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Private key of the client certificate (PEM)
    #[arg(help_heading = TLS, hide_short_help = true)]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Resume TLS sessions: on, off, or N times after each full handshake [default: on]
    ///
    /// on: a new connection resumes a session if its thread has one for the server, as in browsers. off: every handshake is a
    /// full one
    #[arg(help_heading = TLS, hide_short_help = true)]
    #[arg(long, value_name = "on|off|N")]
    tls_resume: Option<SessionResumption>,

    /// Newest TLS version to speak: 1.2 or 1.3 [default: 1.3]
    #[arg(help_heading = TLS, hide_short_help = true)]
    #[arg(long, value_name = "VERSION", value_parser = ["1.2", "1.3"], hide_possible_values = true)]
    tls_max: Option<String>,
}

impl TlsArgs {
    /// The options that the flags and the environment ask for. `any_https`: there is an https:// URL.
    ///
    /// # Errors
    /// A flag without such a URL, or a file that cannot be read or written.
    pub(super) fn options(self, any_https: bool) -> Result<TargetTlsOptions, UsageError> {
        if !any_https {
            return match self.given() {
                Some(flag) => Err(UsageError::new(format!(
                    "{flag} is for TLS, and no URL begins with https://: write one, or leave the flag out"
                ))),
                None => Ok(TargetTlsOptions::default()),
            };
        }
        let trust = match self.cacert {
            _ if self.insecure => Trust::Anybody,
            Some(file) => {
                let text = read("--cacert", &file)?;
                Trust::Authorities(file, text)
            }
            None => Trust::System,
        };
        let identity = match (self.cert, self.key) {
            (Some(certificate), Some(key)) => Some(ClientIdentity {
                certificate: read("--cert", &certificate)?,
                key: read("--key", &key)?,
                files: CertificateFiles { certificate, key },
            }),
            _ => None,
        };
        Ok(TargetTlsOptions {
            trust,
            identity,
            server_name: self.sni,
            resumption: self.tls_resume.unwrap_or_default(),
            is_tls12: self.tls_max.as_deref() == Some("1.2"),
            key_log: key_log()?,
        })
    }

    /// The first of the flags that is given.
    fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--cacert", self.cacert.is_some()),
            ("--insecure", self.insecure),
            ("--sni", self.sni.is_some()),
            ("--cert", self.cert.is_some()),
            ("--tls-resume", self.tls_resume.is_some()),
            ("--tls-max", self.tls_max.is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

fn read(flag: &str, file: &Path) -> Result<String, UsageError> {
    fs::read_to_string(file)
        .map_err(|error| UsageError::new(format!("{flag} {}: {error}", file.display())))
}

/// The file that the environment names for the keys of sessions. The library that writes them ignores a file that it cannot open.
fn key_log() -> Result<Option<PathBuf>, UsageError> {
    let Some(file) = std::env::var_os(KEY_LOG).filter(|file| !file.is_empty()) else {
        return Ok(None);
    };
    let file = PathBuf::from(file);
    match OpenOptions::new().append(true).create(true).open(&file) {
        Ok(_) => Ok(Some(file)),
        Err(error) => Err(UsageError::new(format!(
            "{KEY_LOG} names a file that cannot be written, {}: {error}; unset it, or name another",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        tls: TlsArgs,
    }

    #[track_caller]
    fn options(arguments: &[&str], any_https: bool) -> Result<TargetTlsOptions, String> {
        let flags = Flags::try_parse_from([&["x"], arguments].concat());
        let flags = flags.map_err(|error| error.to_string())?;
        flags.tls.options(any_https).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_options() {
        assert_eq!(options(&[], false), Ok(TargetTlsOptions::default()));
        let found = options(&["-k", "--sni", "a", "--tls-resume", "3", "--tls-max", "1.2"], true);
        let found = found.unwrap();
        assert_eq!((found.trust, found.server_name.as_deref()), (Trust::Anybody, Some("a")));
        assert_eq!((found.resumption, found.is_tls12), (SessionResumption::Times(3), true));
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            fs::write(folder.path().join(name), name).unwrap();
            folder.path().join(name).display().to_string()
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        let found = options(&["--cacert", &ca, "--cert", &cert, "--key", &key], true).unwrap();
        assert_eq!(found.trust, Trust::Authorities(PathBuf::from(&ca), "ca".to_string()));
        let identity = found.identity.unwrap();
        assert_eq!((&identity.certificate[..], &identity.key[..]), ("cert", "key"));
        assert_eq!(identity.files.key, PathBuf::from(key));
    }

    #[derive(Debug, Parser)]
    struct Http2Flags {
        #[command(flatten)]
        http2: Http2Args,
        #[command(flatten)]
        streams: StreamArgs,
    }

    #[test]
    fn http_2_needs_the_flag_for_its_kind_of_url() {
        let protocol = |arguments: &[&str], urls: &[&str]| {
            let flags = Http2Flags::try_parse_from([&["x"], arguments].concat()).unwrap();
            let urls: Vec<Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
            let found = flags.http2.protocol(&urls, flags.streams.streams);
            found.map_err(|error| error.to_string())
        };
        let (plain, tls) = ("http://a/", "https://a/");
        let http2 = |streams| Ok(HttpProtocol::Http2 { streams });
        assert_eq!(protocol(&[], &[plain, tls]), Ok(HttpProtocol::Http1));
        assert_eq!(protocol(&["--http2"], &[tls]), http2(1));
        assert_eq!(protocol(&["--h2c", "-m", "100"], &[plain]), http2(100));
        assert_eq!(protocol(&["--h2c", "--http2", "--streams", "2"], &[plain, tls]), http2(2));
        for (arguments, urls, mention) in [
            (&["--http2"][..], &[tls, plain][..], "http://a/ is none: use --h2c"),
            (&["--h2c"], &[plain, tls], "https://a/ is none: use --http2"),
            (&["--streams", "2"], &[plain], "--streams is for HTTP/2"),
        ] {
            let error = protocol(arguments, urls).unwrap_err();
            assert!(error.contains(mention), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn mistakes_name_the_flag() {
        for (arguments, any_https, mention) in [
            (&["--insecure"][..], false, "--insecure is for TLS"),
            (&["--tls-resume", "on"], false, "--tls-resume is for TLS"),
            (&["--tls-max", "1.3"], false, "--tls-max is for TLS"),
            (&["--cacert", "/no/such/file"], true, "--cacert /no/such/file: No such file"),
            (&["--cert", "/no/such/file", "--key", "x"], true, "--cert /no/such/file: No such"),
            (&["--cert", "x"], true, "--key"),
            (&["--key", "x"], true, "--cert"),
            (&["--cacert", "x", "-k"], true, "--insecure"),
            (&["--tls-resume", "maybe"], true, "on, off"),
            (&["--tls-max", "1.1"], true, "1.2"),
        ] {
            let error = options(arguments, any_https).unwrap_err();
            assert!(error.contains(mention), "{arguments:?}: {error}");
        }
    }
}
