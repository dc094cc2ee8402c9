//! Loads: how a subject is driven.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{self, CountSetting, Setting, SizeSetting, TimeSetting, Unfilled};
use crate::old_names::read_under_metrics;

/// The load that is put on the subject: exactly one of these keys is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["http"]}, {"required": ["connects"]}, {"required": ["tokens"]},
    {"required": ["command"]}
]))]
pub struct LoadSpec {
    /// HTTP requests, sent by Drover's own generator, `drover load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Connections that are opened one after the other and carry no data. For subjects of the kind `waiters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connects: Option<Connects>,
    /// Bytes (tokens) that are passed from pipe to pipe. For subjects of the kind `pipes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenSpec>,
    /// Another load generator: any program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<LoadCommand>,
}

impl LoadSpec {
    /// Whether there is no load.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == LoadSpec::default()
    }
}

/// HTTP requests, sent by `drover load`. A key stands for the flag of the same name (`calls` for
/// `--calls-per-connection`). `drover load --help` explains each flag in full.
///
/// The length of the measurement is set by `[phases]` and the presets, or by the key `requests`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The path of every request; `/` if the key is missing. If the experiment has a pool, the URLs of the
    /// pool's files are requested instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the pool whose files are requested. The key is needed only if the experiment has several
    /// pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// A file of paths to request, one path per line. The name is relative to the experiment file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<String>,
    /// A browser's recording of requests (HAR). The name is relative to the experiment file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_har: Option<String>,
    /// A curl command line to take the request from, as a browser copies it with "Copy as cURL".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curl: Option<String>,
    /// The order of several URLs: `sequential`, `random`, `weighted`, `zipf` or `zipf:S`. If the key is
    /// missing, the files of a pool are requested in random order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The source addresses of the connections, used in turn: `ADDR,ADDR` or `ADDR/PREFIX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The source ports of the connections: `FROM-TO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ports: Option<String>,
    /// A unix socket to connect to in place of the server's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
    /// The method of the requests; GET if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Header fields of the requests: `"Name: value"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<String>,
    /// A body of the requests: text, or @FILE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// How many connections send requests. With `connection_rate`: how many connections there are at most at a
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<CountSetting>,
    /// Requests per second, sent whether or not the server keeps up: a number, a ramp (`"100..1000"`), steps
    /// (`"100,200,500"`) or a sine (`"500~200/10s"`). If the key is missing or 0, each connection sends the
    /// next request when the response to the last one is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Setting>,
    /// New connections per second, written like `rate`. Each connection makes as many requests as `calls` says
    /// and is then closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<Setting>,
    /// The time between two requests of each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<TimeSetting>,
    /// How scheduled requests follow each other: `constant` or `poisson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// The number of requests after which the run ends, in place of the measured time; 0: the measured time
    /// ends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<CountSetting>,
    /// How many requests a connection makes before the connection is closed; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CountSetting>,
    /// How long a connection rests between a response and the next request: `"5s"`, or `"exp:5s"` for
    /// exponentially distributed times with a mean of 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_time: Option<String>,
    /// How many requests a connection makes before each rest of `think_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<CountSetting>,
    /// How many requests a connection sends together (pipelining), before the first response has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<CountSetting>,
    /// How long a response, or the opening of a connection, may take; 10 s if the key is missing. A request
    /// that takes longer is an error; its latency is counted as this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSetting>,
    /// Whether new connections resume TLS sessions: `"on"` (if the key is missing), `"off"`, or how many resumed
    /// handshakes follow each full one. Cells without TLS ignore the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_resume: Option<Setting>,
    /// How many requests a connection of HTTP/2 has under way at once; 1 if the key is missing. Cells without HTTP/2 ignore the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<CountSetting>,
    /// How many idle connections are opened before the first request and kept open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<CountSetting>,
    /// The length that the body of every response must have. A body of another length is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_size: Option<SizeSetting>,
    /// The statuses that responses may have: `"2xx,404"`. A response with another status is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_status: Option<String>,
    /// Whether responses to equal requests must have equal bodies. A body that differs from the first one is an
    /// error.
    #[serde(default)]
    pub verify: bool,
    /// How many bytes per second each connection reads at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<SizeSetting>,
    /// How many threads send requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<CountSetting>,
    /// Whether each thread stays on a processor of its own.
    #[serde(default)]
    pub pin: bool,
    /// How long a thread stays awake before each scheduled request, so that the request starts on time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin: Option<TimeSetting>,
    /// How many processes send requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<CountSetting>,
    /// The dispatch mechanism that the generator waits with (`drover mechanisms` lists them).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<String>,
}

/// What a cell speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpokenProtocols {
    /// Whether it is over TLS.
    pub tls: bool,
    /// Whether it is HTTP/2.
    pub http2: bool,
}

impl Http {
    /// The flags of `drover load` that the keys stand for, every placeholder filled in, where the load speaks these protocols.
    /// What is asked for (`path`, `pool`, `urls`, `from_har`, `curl`) is not among them: it depends on the server's
    /// address.
    ///
    /// # Errors
    /// The first placeholder for which `value` has nothing.
    pub fn flags(
        &self,
        spoken: SpokenProtocols,
        value: impl Fn(&str) -> Option<String> + Copy,
    ) -> Result<Vec<String>, Unfilled> {
        let count = |it: &Option<CountSetting>| it.as_ref().map(|it| it.0.clone());
        let time = |it: &Option<TimeSetting>| it.as_ref().map(|it| it.0.clone());
        let size = |it: &Option<SizeSetting>| it.as_ref().map(|it| it.0.clone());
        let text = |it: &Option<String>| it.clone().map(Setting::Text);
        let mut flags = vec![
            ("--order", text(&self.order)),
            ("--source", text(&self.source)),
            ("--local-ports", text(&self.local_ports)),
            ("--unix", text(&self.unix)),
            ("--method", text(&self.method)),
            ("--body", text(&self.body)),
            ("--connections", count(&self.connections)),
            ("--rate", self.rate.clone()),
            ("--connection-rate", self.connection_rate.clone()),
            ("--every", time(&self.every)),
            ("--arrivals", text(&self.arrivals)),
            ("--requests", count(&self.requests)),
            ("--calls-per-connection", count(&self.calls)),
            ("--think-time", text(&self.think_time)),
            ("--burst", count(&self.burst)),
            ("--pipeline", count(&self.pipeline)),
            ("--timeout", time(&self.timeout)),
            ("--tls-resume", self.tls_resume.clone().filter(|_| spoken.tls)),
            ("--streams", count(&self.streams).filter(|_| spoken.http2)),
            ("--idle", count(&self.idle)),
            ("--expect-size", size(&self.expect_size)),
            ("--expect-status", text(&self.expect_status)),
            ("--read-rate", size(&self.read_rate)),
            ("--threads", count(&self.threads)),
            ("--spin", time(&self.spin)),
            ("--processes", count(&self.processes)),
            ("--dispatch", text(&self.dispatch)),
        ];
        flags.extend(
            self.header.iter().map(|field| ("--header", Some(Setting::Text(field.clone())))),
        );
        let mut words = Vec::new();
        for (flag, setting) in flags {
            let Some(setting) = setting else { continue };
            let mut setting = setting.fill(value)?;
            if matches!(flag, "--expect-size" | "--read-rate")
                && let Ok(bytes) = setting::size(&setting)
            {
                // These flags take a number, with no unit behind it.
                setting = bytes.to_string();
            }
            let is_unlimited = matches!(flag, "--rate" | "--requests" | "--calls-per-connection");
            if !(is_unlimited && setting == "0") {
                words.extend([flag.to_owned(), setting]);
            }
        }
        let switches = [
            ("--verify", self.verify),
            ("--pin", self.pin),
            ("--http2", spoken.http2 && spoken.tls),
            ("--h2c", spoken.http2 && !spoken.tls),
        ];
        words.extend(switches.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
        Ok(words)
    }
}

/// Connections that are opened one at a time, each by a connect(2) that does not block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connects {
    /// How many connections are opened at most; if the key is missing, as many as the measured time allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<CountSetting>,
    /// Whether the load opens the next connection only when every waiter that was woken sleeps again; true if
    /// the key is missing.
    #[serde(default = "yes")]
    pub settle: bool,
    /// The pause between two connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<TimeSetting>,
}

/// Tokens. A token is a byte in a pipe; the thread that reads the byte writes the byte to the next pipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// How many pipes have a token at the same time.
    pub active: CountSetting,
    /// How many tokens each of these pipes has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<CountSetting>,
}

/// Another generator: a program that ends by itself.
///
/// The program's arguments may contain placeholders. `{factor}` is the level of the factor of this name.
/// `{url}`, `{host}` and `{port}` are the server's URL, host and port. In cells with TLS, `{ca}` is the file of the
/// certificate authority (PEM) to trust. `{seconds}` is the measured time,
/// `{seed}` the round's seed, `{urls}` a file of the pool's URLs, `{work}` an empty folder for the run, and
/// `{drover}` the program of the lab itself. `{result}` is the file that the program writes its result to;
/// without `{result}`, the lab reads the program's standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables of the program, in addition to the variables of the lab itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Programs and folders, by name. Each name has a list of paths; the first path that exists is taken. A
    /// path without a slash is searched for in PATH.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub find: IndexMap<String, Vec<String>>,
    /// Where each metric stands in the program's output, by the name of the metric.
    #[serde(deserialize_with = "read_under_metrics")]
    pub metrics: IndexMap<String, Pick>,
}

/// Where a number stands in a generator's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Pick {
    /// A JSON pointer (RFC 6901) into the output: `/latency/p99`.
    #[schemars(extend("format" = "pointer"))]
    Pointer(String),
    /// A place, and a factor that converts the number to the metric's unit.
    Output(OutputPlace),
}

/// Where a number stands in a generator's output, and a factor that converts the number to the metric's unit.
/// Exactly one of `pointer` and `after` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["pointer"]}, {"required": ["after"]}]))]
pub struct OutputPlace {
    /// A JSON pointer (RFC 6901) into the output, if the output is JSON: `/latency/p99`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "pointer"))]
    pub pointer: Option<String>,
    /// The text in front of the number, if the output is not JSON: `Requests/sec:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The factor that the number is multiplied by; 1 if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<f64>,
}

/// A second load on the subject, beside the measured load, for the whole run. The background load is not
/// measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// HTTP requests, sent by Drover's own generator. With `connections = 0` there is no background load.
    pub http: Http,
}

/// The network between load and subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WireSpec {
    /// `"loopback"`, a rate as in `"100mbit"`, or `"{factor}"`.
    #[schemars(extend("format" = "wire"))]
    Name(String),
    /// A network of a limited rate.
    Limited(LimitedWire),
}

/// A network of a limited rate between load and subject: two network namespaces, a pair of virtual interfaces,
/// and a token bucket filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitedWire {
    /// Bits per second, as tc(8) writes them: `"100mbit"`, `"1gbit"`.
    #[schemars(extend("format" = "wire"))]
    pub rate: String,
}

/// The wire of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedWire {
    /// The loopback interface.
    Loopback,
    /// So many bits per second in each direction.
    BitsPerSecond(u64),
}

impl WireSpec {
    /// The wire in a cell, every placeholder filled in.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn resolve(&self, value: impl Fn(&str) -> Option<String>) -> Result<ResolvedWire, String> {
        let (WireSpec::Name(name) | WireSpec::Limited(LimitedWire { rate: name })) = self;
        wire(&setting::fill(name, value).map_err(|unfilled| unfilled.to_string())?)
    }
}

/// Reads the name of a wire.
pub(super) fn wire(text: &str) -> Result<ResolvedWire, String> {
    if text == "loopback" {
        return Ok(ResolvedWire::Loopback);
    }
    let units = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let rate = units.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*bits).filter(|rate| *rate > 0)
    });
    rate.map(ResolvedWire::BitsPerSecond).ok_or_else(|| {
        format!("'{text}' is no wire; write \"loopback\", or a rate as in \"100mbit\" or \"1gbit\"")
    })
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_flags_and_levels_fill_them() {
        let text = "connections = '{n}'\nrate = 500\nrequests = 0\nheader = ['A: b']\nverify = true\n\
                    expect_size = '2K'\n";
        let http: Http = toml::from_str(text).unwrap();
        let value = |name: &str| (name == "n").then(|| "64".to_owned());
        let expected =
            "--connections 64 --rate 500 --expect-size 2048 --header".split(' ').chain(["A: b"]);
        let expected: Vec<&str> = expected.chain(["--verify"]).collect();
        let plain = SpokenProtocols::default();
        let (tls, http2) =
            (SpokenProtocols { tls: true, ..plain }, SpokenProtocols { http2: true, ..plain });
        assert_eq!(http.flags(plain, value).unwrap(), expected);
        assert_eq!(http.flags(plain, |_| None), Err(Unfilled("n".into())));
        let closed: Http = toml::from_str("rate = '{rate}'").unwrap();
        assert_eq!(closed.flags(plain, |_| Some("0".into())).unwrap(), [""; 0]);
        // The generator refuses flags of a protocol if no URL speaks it.
        let resumed: Http = toml::from_str("tls_resume = 'off'").unwrap();
        assert_eq!(resumed.flags(tls, value).unwrap(), ["--tls-resume", "off"]);
        assert_eq!(resumed.flags(plain, value).unwrap(), [""; 0]);
        let streams: Http = toml::from_str("streams = '{n}'").unwrap();
        assert_eq!(streams.flags(tls, value).unwrap(), [""; 0]);
        assert_eq!(streams.flags(http2, value).unwrap(), ["--streams", "64", "--h2c"]);
        let both = SpokenProtocols { tls: true, http2: true };
        assert_eq!(streams.flags(both, value).unwrap(), ["--streams", "64", "--http2"]);
    }

    #[test]
    fn a_wire_is_loopback_or_a_rate() {
        let wire = |name: &str| WireSpec::Name(name.to_owned()).resolve(|_| Some("1gbit".into()));
        assert_eq!(wire("loopback"), Ok(ResolvedWire::Loopback));
        assert_eq!(wire("100mbit"), Ok(ResolvedWire::BitsPerSecond(100_000_000)));
        assert_eq!(wire("{wire}"), Ok(ResolvedWire::BitsPerSecond(1_000_000_000)));
        assert!(wire("100").is_err() && wire("0mbit").is_err() && wire("mbit").is_err());
    }
}
