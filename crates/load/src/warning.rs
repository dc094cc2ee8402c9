//! What a run warns of: a code and a number for programs, a text for people.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $name:literal;)*) => {
        /// A kind of warning. Its name in the JSON result is stable; the text that goes with it is not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum WarningCode {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $variant,)*
        }

        impl WarningCode {
            /// Every code, in the order of docs/load.md.
            pub const ALL: &[WarningCode] = &[$(WarningCode::$variant),*];

            /// The name in JSON and CSV.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(WarningCode::$variant => $name,)*
                }
            }
        }
    };
}

codes! {
    /// A thread of the generator was busy for more than 90 % of the window. No count.
    GeneratorSaturated = "generator-saturated";
    /// The generator stood still for more than 0.1 % of the window. No count; `client.paused_us` has the time.
    GeneratorStalled = "generator-stalled";
    /// Requests that started more than 1 ms late because of the generator.
    LateStarts = "late-starts";
    /// Responses that were read more than 1 ms late because of the generator.
    LateReads = "late-reads";
    /// Scheduled requests that were not sent because the generator fell behind.
    UnsentGeneratorBehind = "unsent-generator-behind";
    /// Scheduled requests that were not sent because no connection was free, or theirs had ended.
    UnsentNoConnection = "unsent-no-connection";
    /// Responses that came after the window. They are not in the rate.
    ResponsesAfterWindow = "responses-after-window";
    /// Requests that failed. They are not in the latencies.
    RequestsFailed = "requests-failed";
    /// Responses with a status other than 2xx.
    StatusNot2xx = "status-not-2xx";
    /// Connections closed because of a response before its request.
    UnsolicitedResponses = "unsolicited-responses";
    /// Connections that the server had not accepted when the window began.
    ConnectionsNotAccepted = "connections-not-accepted";
    /// Attempts to connect that failed.
    ConnectsFailed = "connects-failed";
    /// Streams of each connection that wait because the server takes fewer at once (`SETTINGS_MAX_CONCURRENT_STREAMS`).
    StreamsLimited = "streams-limited";
    /// Idle connections that were not held to the end.
    IdleLost = "idle-lost";
    /// The run was interrupted before its end. No count.
    Interrupted = "interrupted";
    /// Threads that are not used, because each needs a connection.
    ThreadsUnused = "threads-unused";
    /// File descriptors that are missing for the connections.
    DescriptorsShort = "descriptors-short";
    /// Connections for which there is no local port.
    PortsShort = "ports-short";
    /// Entries of a recording (`--from-har`) that are not sent.
    EntriesNotSent = "entries-not-sent";
    /// Entries of a recording whose bodies are not sent as they were recorded.
    EntriesChanged = "entries-changed";
    /// The keys of TLS sessions are written to a file (`SSLKEYLOGFILE`). No count.
    TlsKeysWritten = "tls-keys-written";
    /// Processes of the generator (`--processes`) that ended without a result.
    ProcessesLost = "processes-lost";
    /// The windows of joined results overlap for less than 95 % of their length. No count.
    WindowsApart = "windows-apart";
    /// Some of the joined results have a schedule and some do not. No count.
    SchedulesMixed = "schedules-mixed";
}

impl WarningCode {
    /// Whether the warning is about the input, which all generators of a load share.
    pub(crate) fn is_of_input(self) -> bool {
        matches!(self, WarningCode::EntriesNotSent | WarningCode::EntriesChanged)
    }
}

/// Something to know before a result is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// The kind.
    pub code: WarningCode,
    /// How many of what `code` names; null where there is nothing to count.
    pub count: Option<u64>,
    /// What was seen, its likely cause, and what helps. For people: the wording may change in any version.
    pub text: String,
}

impl Warning {
    /// A warning of `count` things.
    #[must_use]
    pub fn of(code: WarningCode, count: u64, text: impl Into<String>) -> Warning {
        Warning { code, count: Some(count), text: text.into() }
    }

    /// A warning of something that cannot be counted.
    #[must_use]
    pub fn uncounted(code: WarningCode, text: impl Into<String>) -> Warning {
        Warning { code, count: None, text: text.into() }
    }
}

/// The text.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
