//! Compares servers: makes experiments without claims from the names and commands that a user gives.
//!
//! A comparison has three experiments, each with all servers in every round: at saturation, at fixed rates that all
//! servers can serve, and with idle connections.

mod compare;
mod table;

use std::fmt::Write;

pub use table::table;

use crate::decide::fit::comparable_rate;
use crate::digits::two_digits;
use crate::model::{Level, Sample};
use crate::spec::experiment::SCHEMA;
use crate::spec::factor::CASE;
use crate::spec::load::SpokenProtocols;
use crate::spec::made::{array, quoted, read_made};
use crate::spec::{self, Experiment, Faults, built_in};

/// The preset of the experiments.
pub const PRESET: &str = "versus";

/// The id of the experiment at saturation.
pub const SATURATION: &str = "versus-saturation";

/// The id of the experiment at fixed rates.
pub const RATES: &str = "versus-rates";

/// The id of the experiment with idle connections.
pub const IDLE: &str = "versus-idle";

/// The name of Drover's own server with default flags.
const OWN: &str = "drover";

/// The chosen rates, as shares of the lowest saturation rate.
const SHARES: [f64; 2] = [0.1, 0.5];

/// The servers and the workloads of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The servers as tables of an experiment file, in the user's order.
    servers: Vec<(String, String)>,
    /// What all of them speak.
    spoken: SpokenProtocols,
    /// How many requests a connection of HTTP/2 has under way at once.
    pub streams: u32,
    /// The sizes of the files, in bytes. The files are in memory.
    pub file_bytes: Vec<u64>,
    /// How many megabytes of files there are of each size.
    pub pool_mb: u32,
    /// The numbers of connections.
    pub connections: Vec<u32>,
    /// The number of idle connections; 0: memory is not measured.
    pub idle: u32,
    /// How many rounds there are.
    pub rounds: u32,
    /// The length of each window, in seconds.
    pub window_s: f64,
}

/// A size of files and a number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workload {
    body: u64,
    connections: u32,
}

impl Workload {
    fn name(self) -> String {
        format!("files of {} B, {} connections", self.body, self.connections)
    }
}

/// The rates of the workloads, by the workload's name.
pub type Rates = Vec<(String, Vec<f64>)>;

impl Comparison {
    /// A comparison of servers with files of 4 KB and 64 connections, of one stream each, over these protocols. Each server is
    /// `NAME=COMMAND`, or a name that the lab knows.
    ///
    /// # Errors
    /// The text says how to write a server.
    pub fn new(servers: &[String], spoken: SpokenProtocols) -> Result<Comparison, String> {
        let mut found: Vec<(String, String)> = Vec::new();
        for server in servers {
            let (name, table) = server_table(server, spoken)?;
            if found.iter().any(|(other, _)| *other == name) {
                return Err(format!("'{name}' is there twice: give each its own name"));
            }
            found.push((name, table));
        }
        Ok(Comparison {
            servers: found,
            spoken,
            streams: 1,
            file_bytes: vec![4096],
            pool_mb: 10,
            connections: vec![64],
            idle: 1000,
            rounds: 6,
            window_s: 1.0,
        })
    }

    fn workloads(&self) -> Vec<Workload> {
        let of_size = |body: &u64| {
            let body = *body;
            self.connections.iter().map(move |&connections| Workload { body, connections })
        };
        self.file_bytes.iter().flat_map(of_size).collect()
    }

    /// The experiment at saturation: each connection sends its next request when it has its response.
    ///
    /// # Errors
    /// The faults of a server's command.
    pub fn saturation(&self) -> Result<Experiment, Faults> {
        let mut text = self.head(SATURATION, "at saturation");
        text.push_str(&self.http());
        text.push_str(FACTORS);
        for workload in self.workloads() {
            text.push_str(&case(&workload.name(), workload, None));
        }
        self.finish(
            text,
            &["response-rate", "cpu-per-response", "latency-median", "latency-p99", "throughput"],
        )
    }

    /// The experiment with requests at fixed rates, sent whether or not the server keeps up.
    ///
    /// # Errors
    /// The faults of a server's command.
    pub fn fixed_rates(&self, rates: &Rates) -> Result<Experiment, Faults> {
        let mut text = self.head(RATES, "at fixed rates");
        text.push_str(&self.http());
        text.push_str("rate = \"{rate}\"\n[factor.rate]\nunit = \"requests/s\"\n");
        text.push_str(FACTORS);
        for workload in self.workloads() {
            let of_workload = rates.iter().filter(|(name, _)| *name == workload.name());
            for rate in of_workload.flat_map(|(_, rates)| rates) {
                let name = format!("{}, {rate} requests/s", workload.name());
                text.push_str(&case(&name, workload, Some(*rate)));
            }
        }
        self.finish(
            text,
            &["cpu-per-response", "latency-median", "latency-p99", "response-rate", "cpu-percent"],
        )
    }

    /// The experiment with idle connections, beside one connection that sends a request now and then.
    ///
    /// # Errors
    /// The faults of a server's command.
    pub fn idle_connections(&self) -> Result<Experiment, Faults> {
        let mut text = self.head(IDLE, "with idle connections");
        let _ = write!(
            text,
            "[load.http]\nconnections = 1\nrate = 50\nidle = \"{{idle}}\"\ntimeout = \"5s\"\n\
             [factor.idle]\nunit = \"connections\"\nlevels = [{}]\n[factor.body]\nlevels = [{}]\n",
            self.idle, self.file_bytes[0],
        );
        self.finish(text, &["memory-per-idle", "memory"])
    }

    /// The beginning of the text of every experiment.
    fn head(&self, id: &str, title: &str) -> String {
        let SpokenProtocols { tls, http2 } = self.spoken;
        let over = match (tls, http2) {
            (_, true) => " over HTTP/2",
            (true, false) => " over TLS",
            (false, false) => "",
        };
        let mut text = format!(
            "schema = \"{SCHEMA}\"\nid = \"{id}\"\ntitle = \"Servers side by side{over}, {title}\"\n\
             source = \"a comparison of your own\"\nmethod = \"\"\"{METHOD}\"\"\"\ntls = {tls}\nhttp2 = {http2}\n"
        );
        for (name, table) in &self.servers {
            let _ = writeln!(text, "[subject.{}]\n{table}", quoted(name));
        }
        let _ = writeln!(
            text,
            "[pool.files]\nbytes = \"{{body}}\"\ntotal = {}\ndisk = \"memory\"",
            u64::from(self.pool_mb) * 1_000_000
        );
        let _ = writeln!(
            text,
            "[presets.{PRESET}]\nrounds = {}\nwindow = \"{}us\"",
            self.rounds,
            (self.window_s * 1e6).round()
        );
        text
    }

    /// The load: requests for files.
    fn http(&self) -> String {
        let streams = match self.spoken.http2 {
            true => format!("streams = {}\n", self.streams),
            false => String::new(),
        };
        format!(
            "[load.http]\nconnections = \"{{connections}}\"\nexpect_size = \"{{body}}\"\n{streams}"
        )
    }

    fn finish(&self, mut text: String, metrics: &[&str]) -> Result<Experiment, Faults> {
        for (number, metric) in metrics.iter().enumerate() {
            let title = spec::metric::built_in(metric).map_or(*metric, |metric| metric.title);
            let _ = writeln!(
                text,
                "[[figure]]\nid = \"Table {}\"\ntitle = \"{title}\"\nmetric = \"{metric}\"",
                number + 1
            );
        }
        read_made(&text)
    }
}

/// The factors of every experiment: the size of files and the number of connections.
const FACTORS: &str = "[factor.body]\nunit = \"B\"\n[factor.connections]\nunit = \"connections\"\n";

const METHOD: &str = "Connections ask for random files of a pool that is in memory. All servers are \
                      measured in each round, in another order each time, on one processor; the load \
                      generator has the others.";

fn case(name: &str, workload: Workload, rate: Option<f64>) -> String {
    let Workload { body, connections } = workload;
    let rate = rate.map_or(String::new(), |rate| format!("rate = {rate}\n"));
    format!(
        "[[{CASE}]]\nname = {}\nbody = {body}\nconnections = {connections}\n{rate}",
        quoted(name)
    )
}

/// A server's name and the keys of its table.
fn server_table(server: &str, spoken: SpokenProtocols) -> Result<(String, String), String> {
    let is_known = |name: &str| built_in::peers().iter().any(|peer| peer == name);
    match server.split_once('=') {
        Some((name, command)) if !name.trim().is_empty() => {
            if !command.contains("{port}") {
                return Err(format!(
                    "'{server}': write {{port}} where the command takes the port to listen on"
                ));
            }
            if spoken.tls && !(command.contains("{cert}") && command.contains("{key}")) {
                return Err(format!(
                    "'{server}': with --tls, write {{cert}} and {{key}} where the command takes the files of its \
                     certificate and private key"
                ));
            }
            let words = array(&["sh", "-c", command]);
            // That it speaks HTTP/2 over TLS is its user's word.
            let http2 = if spoken.http2 { "\nhttp2 = {}" } else { "" };
            Ok((name.trim().to_owned(), format!("command = {words}{http2}")))
        }
        None if server == OWN => Ok((OWN.to_owned(), "serve = []".to_owned())),
        None if is_known(server) => Ok((server.to_owned(), format!("peer = {}", quoted(server)))),
        _ => Err(format!(
            "'{server}' is no server: write NAME=COMMAND, with {{port}} and {{root}} where the command \
             takes them, or one of {OWN}, {}",
            built_in::peers().join(", ")
        )),
    }
}

/// The rates that follow from a first look at saturation: shares of the rate of the slowest server, by workload. A
/// server that failed is ignored. A workload that no server has served has no rate.
#[must_use]
pub fn rates(samples: &[Sample]) -> Rates {
    let mut lowest: Vec<(String, f64)> = Vec::new();
    for sample in samples {
        let Some(Level::Name(case)) = sample.cell.levels.get(CASE) else { continue };
        let Some(rate) = comparable_rate(sample) else { continue };
        match lowest.iter_mut().find(|(name, _)| name == case) {
            Some((_, least)) => *least = least.min(rate),
            None => lowest.push((case.clone(), rate)),
        }
    }
    let of_share = |lowest: f64| SHARES.map(|share| two_digits(share * lowest)).to_vec();
    lowest.into_iter().map(|(name, lowest)| (name, of_share(lowest))).collect()
}

impl Comparison {
    /// One list of rates, given by the user, for every workload.
    #[must_use]
    pub fn given_rates(&self, rates: &[f64]) -> Rates {
        self.workloads().into_iter().map(|it| (it.name(), rates.to_vec())).collect()
    }

    /// The names of the servers. The others are compared with the first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.servers.iter().map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Cell;

    fn comparison(servers: &[&str]) -> Result<Comparison, String> {
        Comparison::new(&owned(servers), SpokenProtocols::default())
    }

    const TLS: SpokenProtocols = SpokenProtocols { tls: true, http2: false };

    #[test]
    fn over_http2_all_servers_have_as_many_streams() {
        let own = "mine=serve {port} {cert} {key}";
        let spoken = SpokenProtocols { http2: true, ..TLS };
        let mut made = Comparison::new(&owned(&["drover", "nginx", "h2o", own]), spoken).unwrap();
        made.streams = 16;
        let experiment = made.saturation().unwrap();
        assert_eq!(experiment.is_http2(&Default::default()), Ok(true));
        assert!(experiment.title.as_ref().unwrap().contains("over HTTP/2"));
        assert!(experiment.subject.values().all(spec::SubjectSpec::can_speak_http2));
        let http = experiment.load.http.as_ref().unwrap();
        let flags = http.flags(spoken, |_| Some("1".to_owned())).unwrap();
        assert!(flags.windows(2).any(|pair| pair == ["--streams", "16"]), "{flags:?}");
        let files = &experiment.subject["nginx"].over(true, true).files;
        assert!(files["listen"].contains("ssl http2"));
    }

    fn owned(servers: &[&str]) -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn over_tls_a_command_is_told_its_certificate() {
        let own = "mine=serve {port} {cert} {key}";
        let made = Comparison::new(&owned(&["drover", "nginx", own]), TLS).unwrap();
        let experiment = made.saturation().unwrap();
        assert_eq!(experiment.is_tls(&Default::default()), Ok(true));
        assert!(experiment.title.as_ref().unwrap().contains("over TLS"));
        assert!(experiment.subject.values().all(spec::SubjectSpec::can_speak_tls));
        let error = Comparison::new(&owned(&["mine=serve {port}"]), TLS).unwrap_err();
        assert!(error.contains("{cert} and {key}"), "{error}");
        let plain = comparison(&[own]).unwrap().saturation().unwrap();
        assert_eq!(plain.is_tls(&Default::default()), Ok(false));
    }

    #[test]
    fn servers_are_commands_and_known_names() {
        let made = comparison(&["my \"one\"=serve '{root}' {port}", "drover", "nginx"]).unwrap();
        assert_eq!(made.names(), ["my \"one\"", "drover", "nginx"]);
        for experiment in [
            made.saturation().unwrap(),
            made.fixed_rates(&made.given_rates(&[100.0])).unwrap(),
            made.idle_connections().unwrap(),
        ] {
            let command = experiment.subject["my \"one\""].command.as_deref().unwrap();
            assert_eq!(command, ["sh", "-c", "serve '{root}' {port}"]);
            assert_eq!(experiment.subject["drover"].serve.as_deref(), Some(&[][..]));
            assert!(experiment.subject["nginx"].command.is_some());
            let preset = &experiment.presets[PRESET];
            assert_eq!((preset.rounds(), experiment.cells(preset).len()), (6, 3));
        }
    }

    #[test]
    fn every_size_is_asked_for_by_every_number_of_connections_at_every_rate() {
        let mut made = comparison(&["drover"]).unwrap();
        (made.file_bytes, made.connections) = (vec![1, 2], vec![7, 9]);
        let rates = made.given_rates(&[50.0, 500.0]);
        let experiment = made.fixed_rates(&rates).unwrap();
        let cells = experiment.cells(&experiment.presets[PRESET]);
        assert_eq!(cells.len(), 8);
        assert_eq!(cells[1].levels["rate"], Level::Number(500.0));
        assert_eq!(cells[7].levels["body"], Level::Number(2.0));
    }

    #[test]
    fn what_is_no_server_is_answered_with_what_is() {
        for server in ["caddie", "", "=serve {port}"] {
            let error = comparison(&[server]).unwrap_err();
            assert!(error.contains("NAME=COMMAND") && error.contains("nginx"), "{error}");
        }
        assert!(comparison(&["a=serve"]).unwrap_err().contains("{port}"));
        assert!(comparison(&["nginx", "nginx=x {port}"]).unwrap_err().contains("twice"));
        let faults = comparison(&["a=x {port} {rot}"]).unwrap().saturation().unwrap_err();
        assert!(faults.to_string().contains("{rot}"), "{faults}");
    }

    #[test]
    fn rates_are_shares_of_what_the_slowest_server_has_served() {
        let sample = |case: &str, rate: Option<f64>| {
            let levels = [(CASE.to_owned(), Level::Name(case.to_owned()))].into();
            let mut sample = Sample::new(Cell { subject: "s".to_owned(), levels }, 1);
            sample.values.extend(rate.map(|rate| ("response-rate".to_owned(), rate)));
            sample
        };
        let found = rates(&[
            sample("one", Some(34_567.0)),
            sample("one", Some(16_830.0)),
            sample("one", None),
            sample("two", Some(0.0)),
            sample("three", Some(55.0)),
        ]);
        let expected = [("one", [1700.0, 8400.0]), ("three", [6.0, 28.0])];
        let expected: Rates =
            expected.map(|(name, rates)| (name.to_owned(), rates.to_vec())).into();
        assert_eq!(found, expected);
    }
}
