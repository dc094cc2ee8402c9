//! `drover serve --check`: prints what is wrong, or what would be served and where each setting comes from.

use std::io::Write;
use std::time::SystemTime;

use drover_mech::mechanisms::Features;

use super::config::{self, FlagValues, SettingNotes};
use super::flags::memory::amount as told;
use super::flags::tls::check_addresses;
use super::flags::{self, Args};
use super::{choose, configuration, describe, urls, what_is_served};
use crate::cli::stdout::stdout;
use drover_server::{Listen, MechanismAndStrategy, MemoryUse, OpenedFiles, Server};
use drover_usage::printable;

/// Prints what is wrong, or what would be served and where each setting comes from.
pub(super) fn check(args: Args, flags: &FlagValues) -> anyhow::Result<()> {
    let processes = args.processes;
    let (chosen, why_no_rings) = choose(&args, false)?;
    let served = what_is_served(&args);
    let notes = notes(&args, chosen, why_no_rings.as_deref());
    check_addresses(&args, &args.listen, &[])?;
    let acme = flags::acme::settings(&args)?;
    let config = configuration(args, chosen, &OpenedFiles::default())?;
    Server::check(&config)?;
    let sandbox = Server::try_sandbox(&config)?.in_words;
    let described = describe(&config, processes, why_no_rings, flags);
    let addresses: Vec<_> = config.listen.iter().flat_map(Listen::all).collect();
    let urls = urls(&addresses, &config.tls_to_be());
    let mut out = stdout();
    let found =
        format!("no fault found; would serve {served} on {urls}: {described}; sandbox: {sandbox}");
    writeln!(out, "# {}", printable(&found))?;
    for certificate in config.tls.iter().flat_map(|tls| tls.certificates()) {
        if let Some(problem) = certificate.problem(SystemTime::now()) {
            let name = certificate.files().certificate.display().to_string();
            writeln!(out, "# warning: --tls-cert {}: {problem}", printable(&name))?;
        }
    }
    for line in acme.iter().flat_map(|acme| flags::acme::described(acme)) {
        writeln!(out, "# --acme: {}", printable(&line))?;
    }
    writeln!(out, "\n# Who has set what, as a file for --config:")?;
    Ok(write!(out, "{}", config::table(flags, &notes))?)
}

/// What `auto` chooses here, and what flags mean that are not set.
fn notes(
    args: &Args,
    (mechanism, accept): MechanismAndStrategy,
    why_no_rings: Option<&str>,
) -> SettingNotes {
    let mut notes = SettingNotes::new();
    if args.root_of_all().is_none() {
        notes.insert("root", "requests for other hosts get the status 421".to_owned());
    }
    if let Some(line) = args.requests.line_in_force() {
        notes.insert("max-line", format!("takes {line}, as max-head"));
    }
    if args.dispatch.0.is_none() {
        let why = match why_no_rings {
            Some(reason) => reason.to_owned(),
            None if mechanism.features.contains(Features::COMPLETION) => {
                "every worker can have a ring".to_owned()
            }
            None => "measured best of what works here".to_owned(),
        };
        notes.insert("dispatch", format!("takes {}: {why}", mechanism.name));
    }
    if args.accept.0.is_none() {
        let of = format!("takes {}, for {} by {}", accept.name, args.workers(), mechanism.name);
        notes.insert("accept", of);
    }
    if args.files.0.is_none() {
        notes.insert("files", "by a file's size, and whether it is in memory".to_owned());
    }
    if args.workers.is_auto() {
        notes.insert("workers", format!("takes {}, as the usable processors", args.workers()));
    }
    if args.max_connections.is_none() {
        notes.insert("max-connections", "as the limit of open files allows".to_owned());
    }
    let memory = args.server_memory();
    if memory.is_share(MemoryUse::Cache) {
        notes.insert("cache", format!("takes {} per worker", told(memory.cache as u64)));
    }
    if memory.is_share(MemoryUse::Reads) {
        notes.insert("read-memory", format!("takes {} per process", told(memory.reads)));
    }
    let all = memory.budget.all().map_or("no limit is known".to_owned(), told);
    let note = memory.excess().or_else(|| (!memory.is_given()).then(|| format!("takes {all}")));
    notes.extend(note.map(|note| ("memory", note)));
    notes
}
