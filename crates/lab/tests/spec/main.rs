//! Experiment files: what is refused, with which words, and that no text whatever makes the reader panic.

mod broken;
mod built_in;
mod docs;
mod guest;
mod includes;
mod mutated;
mod old_names;
mod quick;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use drover_lab::spec::{self, Experiment, Faults, FileSource};

/// Files that are only in memory.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<PathBuf, String>);

impl Memory {
    /// These files.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Memory {
        let owned = |(path, text): (&str, &str)| (PathBuf::from(path), text.to_owned());
        Memory(files.into_iter().map(owned).collect())
    }

    /// Reads the experiment in one of them.
    pub fn read(&self, path: &str) -> Result<Experiment, Faults> {
        spec::read_from(self, Path::new(path))
    }
}

impl FileSource for Memory {
    fn text(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

/// A file without faults that uses most of the format.
pub const WHOLE: &str = r#"schema = "drover.experiment/2"
id = "whole"
serve = ["--workers", "1"]
wire = "{wire}"
instruments = ["idle-guard"]

[subject.select]
serve = ["--dispatch", "select"]
[subject.mine]
command = ["./srv", "-c", "{conf}", "--port", "{port}"]
env = { RUST_LOG = "off" }
files.conf = "root {root}"
limits = { sigpending = 64, nofile = "{nofile}" }
cpus = 2
ready = { path = "/", status = 200, within = "10s" }
only = { nofile = 1024 }
[subject.nginx]
peer = "nginx"

[factor.offered]
levels = [500, 1000, 2000]
unit = "connections/s"
scale = "log"
[factor.wire]
levels = ["loopback", "100mbit"]
[factor.nofile]
levels = [1024, 4096]

[[case]]
name = "idle"
idle = 6000
[[case]]
name = "busy"
idle = 0

[pool.files]
bytes = "64K"
total = "10M"

[load.http]
connection_rate = "{offered}"
calls = 1
idle = "{idle}"
timeout = "5s"

[phases]
warmup = { until = "steady", at_most = "3s" }
measure = { at_least = "2s", events = 2000 }
drain = true

[metric.refused]
from = "load:/errors/refused"
unit = "1"

[[claim]]
id = "a"
text = "select's throughput plateaus before that of nginx"
by = "document"
effect = { knee = "response-rate", over = "offered", of = "nginx", against = ["select", "mine"] }
where = { case = "idle", wire = ["loopback", "100mbit"] }
holds = { above = 1.2 }
published = [
  { subject = "select", levels = { offered = 500 }, value = 480 },
]

[[figure]]
id = "1"
metric = "refused"
x = "offered"
panels = ["case"]

[presets.quick]
rounds = 6
window = "500ms"
subjects = ["select", "nginx"]
cases = ["idle"]
levels = { offered = [500, 2000] }
pool.files.total = "1M"
budget = "20s"
"#;

#[test]
fn a_whole_file_is_read() {
    let experiment = Memory::new([("f.toml", WHOLE)]).read("f.toml").unwrap();
    let names: Vec<&str> = experiment.subject.keys().map(String::as_str).collect();
    assert_eq!(names, ["select", "mine", "nginx"], "in the order of the file");
    assert!(experiment.subject["nginx"].command.is_some(), "a known server is a command");
    let quick = &experiment.presets["quick"];
    // Two subjects × two rates × two wires × two limits × one case.
    assert_eq!(experiment.cells(quick).len(), 16);
    let all = spec::Preset::default();
    let cells = experiment.cells(&all);
    assert_eq!(cells.iter().filter(|cell| cell.subject == "mine").count(), 12);
    assert_eq!(cells.iter().filter(|cell| cell.subject == "select").count(), 24);
}

#[test]
fn the_smallest_file_needs_a_subject_and_a_load() {
    let text = "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\nserve = []\n[load.http]\n";
    let experiment = Memory::new([("f.toml", text)]).read("f.toml").unwrap();
    let (name, quick) = experiment.presets.get_index(0).unwrap();
    assert_eq!((name.as_str(), quick.rounds(), experiment.cells(quick).len()), ("quick", 6, 1));
}
