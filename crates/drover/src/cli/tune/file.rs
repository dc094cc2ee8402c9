//! The configuration that `drover tune` writes: each choice with its reason and figures.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use drover_lab::document::quoted;
use drover_lab::journal::Environment;
use drover_lab::report::terminal::wrapped;
use drover_lab::tune::{self, Knob, Ruling};

/// The columns of the file.
const WIDTH: usize = 80;

/// What the comments at the beginning of the file tell.
pub(super) struct FileHeader {
    /// The directory, as an absolute path.
    pub(super) root: String,
    /// The day, as in 2001-06-25.
    pub(super) on: String,
    pub(super) took: Duration,
    pub(super) environment: Environment,
    /// The load, in words.
    pub(super) load: String,
    /// The moderate rate, in requests per second.
    pub(super) rate: f64,
}

/// The text of the configuration file. `output` is its path.
pub(super) fn text(head: &FileHeader, rulings: &[Ruling], output: &Path) -> String {
    let mut text = String::new();
    head.write(&mut text, output);
    let _ = writeln!(text, "\nroot = {}", quoted(&head.root));
    for ruling in rulings {
        text.push('\n');
        for line in tune::table(ruling, WIDTH - 2).lines() {
            let _ = writeln!(text, "# {line}");
        }
        if let Some(value) = value(ruling) {
            let _ = writeln!(text, "{} = {value}", ruling.knob.name());
        }
    }
    text
}

impl FileHeader {
    fn write(&self, text: &mut String, output: &Path) {
        let took = drover_usage::duration::in_words(self.took);
        let name = Path::new(output.file_name().unwrap_or(output.as_os_str())).display();
        let written = format!(
            "Written by 'drover tune {}' on {}, in {took}. To use it: drover serve --config {name}",
            self.root, self.on
        );
        comment(text, "", &written);
        text.push_str("#\n");
        let of_machine =
            |name| self.environment.machine.get(name).map_or("unknown", String::as_str);
        let machine = ["processor", "processors", "memory"].map(of_machine);
        let [processor, processors, memory] = machine;
        let about = [
            ("Kernel", self.environment.kernel.clone()),
            ("Machine", format!("{processor}, {processors} processors, memory {memory}")),
            (
                "Program",
                format!("drover {}, hash {}", env!("CARGO_PKG_VERSION"), self.environment.program),
            ),
            (
                "Load",
                format!(
                    "{}. They are asked for again and again, from memory; server and load share this \
                     machine, without a network.",
                    self.load
                ),
            ),
            ("Measured", format!("CPU time per response at {} requests/s, and {RULES}", self.rate)),
        ];
        for (name, value) in about {
            comment(text, &format!("{name}: "), &value);
        }
    }
}

/// The rest of the sentence about how candidates are compared.
const RULES: &str = "responses per second at saturation. Ratios are to the one that is taken, round by round, with \
                     intervals of 99 %. A difference counts if its interval excludes 1 and it is 3 % or more. Who \
                     is taken is worse in neither measure, if there is such a candidate. Ties go to what auto \
                     takes, then to the simpler one.";

/// The value of the flag. A flag whose choice is what `auto` takes stays `auto`, so that the file also works where
/// that choice is not available. `None`: the flag has its default.
fn value(ruling: &Ruling) -> Option<String> {
    let is_measured = ruling.taken.is_some();
    match (ruling.knob, ruling.change(), ruling.auto.as_deref()) {
        (_, Some(name), _) => {
            Some(name.parse::<u32>().map_or_else(|_| quoted(name), |it| it.to_string()))
        }
        (Knob::Cache, None, _) => None,
        (Knob::Workers, None, _) => Some("\"auto\"  # one for each processor".to_owned()),
        (_, None, Some(auto)) if is_measured && auto != "auto" => {
            Some(format!("\"auto\"  # takes {auto} here"))
        }
        _ => Some("\"auto\"".to_owned()),
    }
}

fn comment(out: &mut String, first: &str, text: &str) {
    for line in wrapped(first, 4, text, WIDTH - 2).lines() {
        let _ = writeln!(out, "# {line}");
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use drover_lab::document::{Node, SourceText};
    use drover_lab::tune::RulingReason;

    use super::*;

    fn ruling(knob: Knob, taken: &str, auto: &str) -> Ruling {
        let rule = RulingReason::Tie(vec!["an other one".to_owned()]);
        let taken = Some(taken.to_owned());
        Ruling { taken, rule, ..Ruling::not_measured(knob, Some(auto.to_owned()), "") }
    }

    #[test]
    fn choices_are_keys_and_reasons_are_comments() {
        let head = FileHeader {
            root: "/srv/\"www\"".to_owned(),
            on: "2001-06-25".to_owned(),
            took: Duration::from_millis(160_300),
            environment: Environment::default(),
            load: "64 connections ask for 3 files".to_owned(),
            rate: 7000.0,
        };
        let rulings = [
            ruling(Knob::Dispatch, "epoll", "uring"),
            ruling(Knob::Files, "auto", "auto"),
            ruling(Knob::Workers, "2", "4"),
            ruling(Knob::Accept, "reuseport", "reuseport"),
            Ruling::not_measured(Knob::Cache, None, "all files fit"),
        ];
        let text = text(&head, &rulings, Path::new("conf/drover.toml"));
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
        for expected in [
            "on 2001-06-25, in 2m 40s. To use it",
            "--config drover.toml\n",
            "# Measured: CPU time per response at 7000 requests/s, and responses per second",
            "accept = \"auto\"  # takes reuseport here\n",
            "# cache: left as it is: all files fit.\n",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        let source = SourceText { name: "drover.toml".to_owned(), text };
        let root = Node::parse(&Rc::new(source)).unwrap();
        assert_eq!(root.keys(), ["root", "dispatch", "files", "workers", "accept"]);
        let text = |key: &str| root.get(key).and_then(|node| node.text());
        assert_eq!((text("root"), text("dispatch")), (Some("/srv/\"www\""), Some("epoll")));
        assert_eq!((text("files"), text("accept")), (Some("auto"), Some("auto")));
        assert_eq!(root.get("workers").and_then(|node| node.number()), Some(2.0));
    }
}
