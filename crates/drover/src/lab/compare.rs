//! Any servers side by side: an experiment without claims, made of command lines.

use std::fmt::Write;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::experiment::Experiment;
use super::peers;
use crate::error::UsageError;

/// The preset of the experiment.
pub const PRESET: &str = "compare";

/// Drover's own server, as it comes.
const OWN: &str = "drover";

/// What is asked of the servers, and how often.
#[derive(Clone, Debug)]
pub struct Load {
    /// Sizes of the files, which are in memory.
    pub file_bytes: Vec<NonZeroU64>,
    /// How many megabytes of them there are of each size.
    pub pool_mb: NonZeroU32,
    /// Numbers of connections.
    pub connections: Vec<NonZeroU32>,
    /// The length of each measured window.
    pub window: Duration,
    /// How often each point is run.
    pub repeats: NonZeroU32,
}

/// The experiment that compares `servers`: each `NAME=COMMAND`, or the name of one that the lab knows.
///
/// # Errors
/// A [`UsageError`] that says how to write a server.
pub fn experiment(servers: &[String], load: &Load) -> Result<Experiment, UsageError> {
    let mut names = Vec::new();
    let mut tables = String::new();
    for server in servers {
        let (name, table) = match server.split_once('=') {
            Some((name, command)) => (name.trim(), format!("command = {}", quoted(command))),
            None if server == OWN => (OWN, "serve = []".to_string()),
            None => (server.as_str(), String::new()),
        };
        let is_known = !table.is_empty() || peers::names().iter().any(|peer| peer == name);
        if name.is_empty() || !is_known {
            return Err(UsageError::new(format!(
                "'{server}' is no server: write NAME=COMMAND, with {{port}} and {{root}} where the \
                 command takes them, or one of {OWN}, {}",
                peers::names().join(", ")
            )));
        }
        if names.contains(&quoted(name)) {
            return Err(UsageError::new(format!(
                "'{name}' is there twice: give each its own name"
            )));
        }
        names.push(quoted(name));
        if !table.is_empty() {
            let _ = writeln!(tables, "[servers.{}]\n{table}", quoted(name));
        }
    }
    let text = format!(
        "{HEAD}mechanisms = [{}]\n{tables}[workload]\nkeeps_files = true\n{}{FIGURES}",
        names.join(", "),
        preset(load)
    );
    Experiment::parse(&text, "the command line")
}

fn preset(load: &Load) -> String {
    let sizes: Vec<String> = load.file_bytes.iter().map(NonZeroU64::to_string).collect();
    let levels: Vec<String> = load.connections.iter().map(NonZeroU32::to_string).collect();
    format!(
        "[presets.{PRESET}]\nconnections = [{}]\nfile_bytes = [{}]\npool_mb = {}\ndisk = \"cached\"\n\
         window_s = {}\nrepeats = {}\nbudget_s = 86400\n",
        levels.join(", "),
        sizes.join(", "),
        load.pool_mb,
        load.window.as_secs_f64(),
        load.repeats
    )
}

/// As TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

const HEAD: &str = r#"id = "compare"
title = "Servers side by side"
source = "a comparison of your own"
question = "Which of these servers serves files at the least cost?"
method = """
Connections ask for random files of a pool that is in memory, each for its next one when it has one. All servers are \
measured in each round, in another order each time, on one processor; the load generator has the others."""
claims = []
compares = "files"
"#;

const FIGURES: &str = r#"
[[figures]]
id = "Table 1"
title = "Replies"
metric = "reply-rate"
[[figures]]
id = "Table 2"
title = "What a reply costs the server"
metric = "cpu-per-reply"
[[figures]]
id = "Table 3"
title = "99 % response time"
metric = "latency-p99"
[[figures]]
id = "Table 4"
title = "Throughput"
metric = "throughput"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            file_bytes: vec![NonZeroU64::new(1000).unwrap()],
            pool_mb: NonZeroU32::MIN,
            connections: vec![NonZeroU32::new(7).unwrap()],
            window: Duration::from_millis(250),
            repeats: NonZeroU32::new(5).unwrap(),
        }
    }

    fn made(servers: &[&str]) -> Result<Experiment, String> {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        experiment(&servers, &load()).map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_commands_and_known_names() {
        let made = made(&["my \"one\"=serve '{root}' {port}", "drover", "nginx"]).unwrap();
        assert_eq!(made.mechanisms, ["my \"one\"", "drover", "nginx"]);
        let command = made.servers["my \"one\""].command.as_deref();
        assert_eq!(command, Some("serve '{root}' {port}"));
        assert_eq!(made.servers["drover"].serve.as_deref(), Some(&[][..]));
        assert!(!made.servers.contains_key("nginx") && made.workload.keeps_files);
        let preset = made.preset(PRESET).unwrap();
        assert_eq!((preset.repeats, preset.window_s.0), (5, 0.25));
    }

    #[test]
    fn what_is_no_server_is_answered_with_what_is() {
        for server in ["caddie", "", "=serve {port}"] {
            let error = made(&[server]).unwrap_err();
            assert!(error.contains("NAME=COMMAND") && error.contains("nginx"), "{error}");
        }
        assert!(made(&["a=serve"]).unwrap_err().contains("{port}"));
        assert!(made(&["nginx", "nginx=x {port}"]).unwrap_err().contains("twice"));
    }
}
