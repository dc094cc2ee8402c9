//! The configuration of a server as lines of a file. Each line has the origin of its setting in a comment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;

use super::flag_values::{FlagOrigin, FlagValue, FlagValueKind, FlagValues};
use crate::cli::serve::hosts::{HOST, HostFlag, NAME, ROOT, command as host_command};

/// The column where the origins begin, unless a value is longer.
const COLUMN: usize = 33;

/// Remarks on settings, by the name of the setting; for example what `auto` takes.
pub(in crate::cli::serve) type SettingNotes = BTreeMap<&'static str, String>;

/// Every setting as a line of a configuration file, in the groups of the help texts. Flags for experiments are there
/// only if they are set. `--config` reads the lines as they are.
pub(in crate::cli::serve) fn table(flags: &FlagValues, notes: &SettingNotes) -> String {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for flag in &flags.all {
        let heading = flag.heading.as_deref();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let has_responses =
        flags.all.iter().any(|it| it.name == "response-size" && !it.values.is_empty());
    let mut text = String::new();
    for heading in headings {
        let is_shown = |it: &&FlagValue| {
            it.heading.as_deref() == heading
                && (it.is_common || it.origin != FlagOrigin::Default)
                && !is_host(it)
                // With --response-size nothing of a directory is served, and a file must not set both.
                && !(it.kind == FlagValueKind::Positional && has_responses)
        };
        let lines: Vec<String> = flags
            .all
            .iter()
            .filter(is_shown)
            .map(|setting| line(setting, notes.get(setting.name.as_str())))
            .collect();
        if let (Some(heading), false) = (heading, lines.is_empty()) {
            let _ = writeln!(text, "\n# {heading}");
        }
        lines.iter().for_each(|line| text.extend([line, "\n"]));
    }
    // Whatever stands behind the head of a table belongs to the table.
    flags.all.iter().filter(|it| is_host(it)).for_each(|setting| hosts(setting, &mut text));
    text
}

fn is_host(setting: &FlagValue) -> bool {
    setting.name == HOST
}

/// A table for each value of `--host`.
fn hosts(setting: &FlagValue, text: &mut String) {
    for (number, value) in setting.values.iter().enumerate() {
        let Ok(host) = HostFlag::parse(&value.to_string_lossy()) else { continue };
        let head = format!("[[{HOST}]]");
        let _ = writeln!(text, "\n{head:COLUMN$} # {}", setting.origin_of(number));
        let names: Vec<_> =
            host.names.iter().map(|name| drover_lab::document::quoted(&name.to_string())).collect();
        let _ = writeln!(text, "{NAME} = [{}]", names.join(", "));
        let _ = writeln!(text, "{ROOT} = {}", quoted_path(host.root.as_os_str()));
        for flag in host_command().get_arguments() {
            let is_without = host.without.iter().any(|it| flag.get_long() == Some(it));
            if is_without || host.own.contains_id(flag.get_id().as_str()) {
                let _ = writeln!(text, "{}", assignment(&FlagValue::of(flag, &host.own)));
            }
        }
    }
}

fn line(setting: &FlagValue, note: Option<&String>) -> String {
    let value = match setting.values.is_empty() {
        true => format!("# {}", setting.name),
        false => assignment(setting),
    };
    let note = note.map_or(String::new(), |note| format!(": {note}"));
    format!("{value:COLUMN$} # {}{note}", setting.origin)
}

/// What a file says to set a flag.
fn assignment(setting: &FlagValue) -> String {
    let values: Vec<String> = setting.values.iter().map(|value| written(setting, value)).collect();
    match setting.kind {
        FlagValueKind::List => format!("{} = [{}]", setting.name, values.join(", ")),
        _ if values.is_empty() => format!("{} = \"\"", setting.name),
        _ => format!("{} = {}", setting.name, values.join("")),
    }
}

/// A value as TOML has it.
fn written(setting: &FlagValue, value: &OsStr) -> String {
    if setting.is_path && value != "-" {
        return quoted_path(value);
    }
    let text = value.to_string_lossy().into_owned();
    if let Some(path) = text.strip_prefix("unix:").filter(|_| setting.name == "listen") {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
        return drover_lab::document::quoted(&format!("unix:{}", absolute.display()));
    }
    let is_number = text.parse::<u32>().is_ok_and(|number| number.to_string() == text);
    match is_number || setting.kind == FlagValueKind::Switch {
        true => text,
        false => drover_lab::document::quoted(&text),
    }
}

/// Relative paths become absolute: a file elsewhere would read them relative to its own folder.
fn quoted_path(path: &OsStr) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    drover_lab::document::quoted(&absolute.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::flag_values::command;
    use super::*;

    fn flags(words: &[&str]) -> FlagValues {
        let words = [&["serve"], words].concat();
        FlagValues::of(&command().try_get_matches_from(words).unwrap())
    }

    /// A file is named in comments, which a line end in its name would end.
    #[test]
    fn the_name_of_a_file_ends_no_comment() {
        let mut flags = flags(&["/srv"]);
        let origin = FlagOrigin::File { name: "a\nb\u{1b}.toml".to_owned(), line: 7, column: 1 };
        flags.fill_in("workers", vec!["2".into()], origin);
        let text = table(&flags, &SettingNotes::new());
        assert!(text.contains("# a\\nb\\u{1b}.toml:7\n"), "{text}");
    }

    #[test]
    fn a_line_says_value_and_origin() {
        let mut flags = flags(&["/srv", "--workers", "2", "--pin", "--overflow=ignore"]);
        let origin = FlagOrigin::File { name: "d.toml".to_owned(), line: 7, column: 1 };
        let listen = ["80", ":81", "unix:/run/a,mode=0666"].map(OsString::from);
        flags.fill_in("listen", listen.into(), origin.clone());
        flags.fill_in("workers", vec!["9".into()], origin);
        let notes = SettingNotes::from([("dispatch", "takes poll".to_owned())]);
        let text = table(&flags, &notes);
        let lines = text.lines().map(|line| line.split('#').map(str::trim).collect::<Vec<_>>());
        let lines: Vec<_> = lines.map(|parts| parts.join(" # ")).collect();
        for line in [
            "root = \"/srv\" # command line",
            " # Serving",
            "listen = [80, \":81\", \"unix:/run/a,mode=0666\"] # d.toml:7",
            "workers = 2 # command line",
            "pin = true # command line",
            "dispatch = \"auto\" # default: takes poll",
            "overflow = \"ignore\" # command line",
            " # max-connections # default",
            "hidden = false # default",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("advise"), "{text}");
        assert!(!text.contains("\nconfig") && !text.contains("\ncheck"), "{text}");
    }
}
