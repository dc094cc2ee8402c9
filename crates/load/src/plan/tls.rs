//! How TLS is spoken with the servers of `https://` URLs.

use std::path::PathBuf;

use drover_tls::client::{ClientIdentity, ClientTlsOptions, Trust};

use crate::plan::http2::HttpProtocol;
use crate::warning::{Warning, WarningCode};

/// The most sessions that a thread keeps for a server, to resume them.
const SESSIONS_MOST: u32 = 4096;

/// How TLS is spoken with the servers of `https://` URLs, as flags say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetTlsOptions {
    /// Which servers are trusted.
    pub trust: Trust,
    /// The certificate for servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// The name that is sent, and that the server's certificate must have; `None`: the host of the URL.
    pub server_name: Option<String>,
    /// Which connections resume a session.
    pub resumption: SessionResumption,
    /// Whether TLS 1.2 is spoken in place of 1.3.
    pub is_tls12: bool,
    /// The file that the environment names for the keys of sessions (`SSLKEYLOGFILE`).
    pub key_log: Option<PathBuf>,
}

/// Which connections resume a TLS session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionResumption {
    /// Each for which its thread has a session with the server, as in browsers.
    #[default]
    On,
    /// None: every handshake is a full one.
    Off,
    /// This many after each full handshake, per thread and server.
    Times(u32),
}

impl std::str::FromStr for SessionResumption {
    type Err = String;

    fn from_str(text: &str) -> Result<SessionResumption, String> {
        match text {
            "on" => Ok(SessionResumption::On),
            "off" => Ok(SessionResumption::Off),
            number => match number.parse() {
                Ok(0) => Ok(SessionResumption::Off),
                Ok(times) => Ok(SessionResumption::Times(times)),
                Err(_) => Err("write on, off, or how many resumed handshakes follow each full one"
                    .to_string()),
            },
        }
    }
}

impl TargetTlsOptions {
    /// The same for `drover_tls`; a thread has at most `connections`, which speak `protocol`.
    pub(crate) fn client(&self, connections: u32, protocol: HttpProtocol) -> ClientTlsOptions {
        let sessions = match self.resumption {
            SessionResumption::Off => 0,
            // As many as may be opened at once, each of which takes one.
            SessionResumption::On | SessionResumption::Times(_) => {
                connections.clamp(1, SESSIONS_MOST) as usize
            }
        };
        ClientTlsOptions {
            trust: self.trust.clone(),
            identity: self.identity.clone(),
            sessions,
            is_tls12: self.is_tls12,
            log_keys: self.key_log.is_some(),
            protocols: protocol.offered(),
        }
    }

    /// What a reader of the result should know of TLS.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let file = self.key_log.as_ref()?.display();
        let text = format!(
            "the keys of the TLS sessions are written to {file} (SSLKEYLOGFILE): whoever reads it can decrypt them"
        );
        Some(Warning::uncounted(WarningCode::TlsKeysWritten, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumption_is_on_or_off_or_a_number_of_times() {
        for (text, expected) in [
            ("on", SessionResumption::On),
            ("off", SessionResumption::Off),
            ("0", SessionResumption::Off),
            ("9", SessionResumption::Times(9)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "On", "-1", "1.5", "often"] {
            assert!(text.parse::<SessionResumption>().unwrap_err().contains("on, off"), "{text}");
        }
    }

    #[test]
    fn a_thread_keeps_a_session_for_each_connection_unless_none_is_resumed() {
        let of = |resumption, connections| {
            let options = TargetTlsOptions { resumption, ..TargetTlsOptions::default() };
            options.client(connections, HttpProtocol::Http1).sessions
        };
        assert_eq!(of(SessionResumption::On, 64), 64);
        assert_eq!(of(SessionResumption::Times(3), 100_000), 4096);
        assert_eq!(of(SessionResumption::On, 0), 1);
        assert_eq!(of(SessionResumption::Off, 64), 0);
    }
}
