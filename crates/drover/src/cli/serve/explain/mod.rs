//! `drover serve --explain`: what the server would use, what was looked at to choose it, and what would help. Serves
//! nothing. The choices are made by the code that serves; nothing is told of what was not looked at.

mod axes;
mod kernel;

use std::io::Write;

use drover_lab::report::terminal::wrapped;
use drover_sys::process::raise_open_files_limit;

use super::config::FlagValues;
use super::flags::tls::check_addresses;
use super::flags::{self, Args};
use super::{choose, configuration, tuned, what_is_served};
use crate::cli::stdout::stdout;
use axes::ServerSelection;
use drover_server::{Config, OpenedFiles, Server};
use drover_sys::process::open_files_limit;

/// The columns of the text.
const WIDTH: usize = 80;
/// Where the texts behind the labels begin.
const INDENTATION: usize = 13;

/// What is told of one axis.
#[derive(Debug, Default)]
struct Explanation {
    axis: &'static str,
    /// What the server would use.
    chosen: String,
    /// What was looked at, and what it was.
    probed: Vec<String>,
    /// Why it was chosen.
    why: String,
    /// What to change to have something better.
    change: Vec<String>,
}

impl Explanation {
    fn text(&self) -> String {
        let mut text = labelled(self.axis, &self.chosen);
        let (why, one) = ([self.why.clone()], |text: &&String| !text.is_empty());
        for (label, lines) in
            [("  probed", &self.probed[..]), ("  why", &why), ("  change", &self.change)]
        {
            let mut label = label;
            for line in lines.iter().filter(one) {
                text += &labelled(label, line);
                label = "";
            }
        }
        text
    }
}

fn labelled(label: &str, text: &str) -> String {
    wrapped(&format!("{label:INDENTATION$}"), INDENTATION, text, WIDTH)
}

/// Prints what would be used and why.
pub(super) fn explain(args: Args, flags: &FlagValues) -> anyhow::Result<()> {
    let (chosen, why_no_rings) = choose(&args, false)?;
    let served = what_is_served(&args);
    let processes = args.processes;
    let memory = args.server_memory();
    let no_tuned = tuned::why_none(&args);
    let is_root_served = drover_sys::process::is_root() && args.user.is_none();
    let descriptors = open_files_limit();
    raise_open_files_limit()?;
    check_addresses(&args, &args.listen, &[])?;
    let acme = flags::acme::settings(&args)?;
    let config = Config { acme, ..configuration(args, chosen, &OpenedFiles::default())? };
    let chosen = ServerSelection {
        config: &config,
        flags,
        why_no_rings: why_no_rings.as_deref(),
        processes,
        memory: &memory,
    };
    let mut all = vec![
        chosen.dispatch(),
        chosen.accept(),
        chosen.listen(),
        chosen.defer_accept(),
        chosen.files(),
        chosen.cache(),
        chosen.memory(),
        chosen.workers()?,
        chosen.descriptors(descriptors)?,
        chosen.tuned(no_tuned),
    ];
    all.extend(chosen.tls());
    // The last: what the sandbox forbids could not be looked at any more.
    all.push(axes::sandbox(Server::try_sandbox(&config)?, is_root_served));
    let mut out = stdout();
    // In a container, /proc/sys may be missing.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let head = format!("What serving {served} would use on Linux {release}:");
    write!(out, "{}", wrapped("", 0, &head, WIDTH))?;
    for one in &all {
        write!(out, "\n{}", one.text())?;
    }
    let changes = all.iter().map(|one| one.change.len()).sum::<usize>();
    let end = match changes {
        0 => "Nothing to change was found.".to_owned(),
        1 => "1 thing to change was found: see 'change'.".to_owned(),
        more => format!("{more} things to change were found: see 'change'."),
    };
    Ok(writeln!(out, "\n{end}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_before_the_first_of_their_lines_and_no_line_is_too_long() {
        let explanation = Explanation {
            axis: "dispatch",
            chosen: "poll".to_owned(),
            probed: vec!["words ".repeat(30), "more".to_owned()],
            why: "because".to_owned(),
            change: Vec::new(),
        };
        let text = explanation.text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let labels: Vec<&str> = text
            .lines()
            .map(|line| line[..INDENTATION].trim())
            .filter(|it| !it.is_empty())
            .collect();
        assert_eq!(labels, ["dispatch", "probed", "why"]);
        assert!(text.contains("\n             more\n"), "{text}");
    }
}
