//! Loads: how a subject is driven.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{self, Count, Setting, Size, Time, Unfilled};

/// How the subject is driven: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["http"]}, {"required": ["connects"]}, {"required": ["tokens"]},
    {"required": ["command"]}
]))]
pub struct Load {
    /// HTTP requests, by Drover's own generator: `drover load` and its flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Connections that are opened one after the other and carry nothing: for crowds of waiters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connects: Option<Connects>,
    /// Bytes that are passed from pipe to pipe: for sets of pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Another generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<LoadCommand>,
}

/// Requests of `drover load`. A key is the flag of that name; what a flag means in full, `drover load
/// --help` says.
///
/// How long is measured, `[phases]` and the presets say, or `requests`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The path that is asked for; `/` unless given. With a pool of files, its URLs are asked for instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The pool whose files are asked for, by its name; needed only if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// A file of paths to ask for, one a line, relative to the experiment file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<String>,
    /// What a browser has recorded (HAR), relative to the experiment file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_har: Option<String>,
    /// What a browser copies "as cURL".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curl: Option<String>,
    /// The order of several URLs: sequential, random, weighted, zipf or `zipf:S`. A pool is asked for in random
    /// order unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The addresses that connections come from, in turn: `ADDR,ADDR` or `ADDR/PREFIX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The ports that connections come from: `FROM-TO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ports: Option<String>,
    /// A unix socket to connect to in place of the server's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
    /// The method of the requests; GET unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Header fields of the requests: `"Name: value"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<String>,
    /// A body of the requests: text, or @FILE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Connections that send requests; with `connection_rate`, at most so many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Count>,
    /// Requests per second, sent whether or not the server keeps up: a number, or `"100..1000"`,
    /// `"100,200,500"`, `"500~200/10s"`. Without it, or at 0, each connection sends its next request when it
    /// has its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Setting>,
    /// Connections per second, written like `rate`; each makes its `calls` and is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<Setting>,
    /// How often each connection sends a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Time>,
    /// How scheduled requests follow each other: constant or poisson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// How many requests end the run, in place of the measured time; 0 for no such end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Count>,
    /// How many requests a connection makes before it is closed; 0 for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Count>,
    /// The rest of a connection between a response and its next request: `"5s"`, or `"exp:5s"` for
    /// exponentially distributed rests with that mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_time: Option<String>,
    /// How many requests of a connection follow each other without a rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Count>,
    /// How many requests a connection sends together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Count>,
    /// How long a response, or the opening of a connection, may take; 10 s unless given. A request that
    /// takes longer is an error, and its latency is censored at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// Idle connections that are opened first and held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Count>,
    /// The length of a body; a response with another one is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_size: Option<Size>,
    /// The statuses that responses may have, as in `"2xx,404"`; others are errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_status: Option<String>,
    /// Whether a response with another body than the first one to the same request is an error.
    #[serde(default)]
    pub verify: bool,
    /// Bytes per second that each connection reads at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<Size>,
    /// Threads that send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Count>,
    /// Whether each thread stays on a processor of its own.
    #[serde(default)]
    pub pin: bool,
    /// How long before each scheduled start a thread stays awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin: Option<Time>,
    /// Processes that send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Count>,
    /// How the generator waits: a dispatch mechanism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<String>,
}

impl Http {
    /// The flags of `drover load` that the keys stand for, every placeholder filled in. What is asked for
    /// (`path`, `pool`, `urls`, `from_har`, `curl`) is not among them: it depends on the server's address.
    ///
    /// # Errors
    /// The first placeholder for which `value` has nothing.
    pub fn flags(
        &self,
        value: impl Fn(&str) -> Option<String> + Copy,
    ) -> Result<Vec<String>, Unfilled> {
        let count = |it: &Option<Count>| it.as_ref().map(|it| it.0.clone());
        let time = |it: &Option<Time>| it.as_ref().map(|it| it.0.clone());
        let size = |it: &Option<Size>| it.as_ref().map(|it| it.0.clone());
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
        let switches = [("--verify", self.verify), ("--pin", self.pin)];
        words.extend(switches.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
        Ok(words)
    }
}

/// Connections that are opened one at a time, each by a connect(2) that does not block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connects {
    /// How many at most; as many as the measured time allows, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
    /// Whether the next connection waits until every waiter that was woken sleeps again.
    #[serde(default = "yes")]
    pub settle: bool,
    /// The rest between two connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Time>,
}

/// Tokens: a byte is written to a pipe, and whoever reads it writes it to the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// How many pipes have a token at a time.
    pub active: Count,
    /// How many writes are in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Count>,
}

/// Another generator: a program that ends by itself.
///
/// In its arguments `{factor}` is a level, `{url}`, `{host}` and `{port}` are the server's, `{seconds}` is
/// the measured time, `{seed}` the round's seed, `{urls}` a file of the pool's URLs, and `{result}` a file
/// that it writes; without `{result}`, its standard output is read. `{work}` is an empty folder of this run,
/// `{drover}` the program of the lab itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables beside those of the lab itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Programs by name, as in a subject.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub find: IndexMap<String, Vec<String>>,
    /// Where the metrics stand in what it writes.
    pub metrics: IndexMap<String, Pick>,
}

/// Where a number stands in what a generator writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Pick {
    /// A JSON pointer (RFC 6901) into its JSON: `/latency/p99`.
    #[schemars(extend("format" = "pointer"))]
    Pointer(String),
    /// A place, and what brings the number into the metric's unit.
    Output(OutputPlace),
}

/// Where a number stands, and what brings it into the metric's unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Place")]
#[schemars(extend("oneOf" = [{"required": ["pointer"]}, {"required": ["after"]}]))]
pub struct OutputPlace {
    /// A JSON pointer (RFC 6901) into its JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "pointer"))]
    pub pointer: Option<String>,
    /// The text in front of the number, where the output is no JSON: `Requests/sec:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// What the number is multiplied by; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<f64>,
}

/// What goes on beside the measured load, on the subject and for the whole run. It is not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// HTTP requests, by Drover's own generator, with as many connections as asked for; none at 0.
    pub http: Http,
}

/// The wire between load and subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Wire {
    /// `"loopback"`, a rate as in `"100mbit"`, or `"{factor}"`.
    #[schemars(extend("format" = "wire"))]
    Name(String),
    /// A wire of a limited rate.
    Limited(LimitedWire),
}

/// Two network namespaces, a pair of virtual interfaces, and a token bucket.
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

impl Wire {
    /// The wire in a cell, every placeholder filled in.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn resolve(&self, value: impl Fn(&str) -> Option<String>) -> Result<ResolvedWire, String> {
        let (Wire::Name(name) | Wire::Limited(LimitedWire { rate: name })) = self;
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
        assert_eq!(http.flags(value).unwrap(), expected);
        assert_eq!(http.flags(|_| None), Err(Unfilled("n".into())));
        let closed: Http = toml::from_str("rate = '{rate}'").unwrap();
        assert_eq!(closed.flags(|_| Some("0".into())).unwrap(), [""; 0]);
    }

    #[test]
    fn a_wire_is_loopback_or_a_rate() {
        let wire = |name: &str| Wire::Name(name.to_owned()).resolve(|_| Some("1gbit".into()));
        assert_eq!(wire("loopback"), Ok(ResolvedWire::Loopback));
        assert_eq!(wire("100mbit"), Ok(ResolvedWire::BitsPerSecond(100_000_000)));
        assert_eq!(wire("{wire}"), Ok(ResolvedWire::BitsPerSecond(1_000_000_000)));
        assert!(wire("100").is_err() && wire("0mbit").is_err() && wire("mbit").is_err());
    }
}
