//! `--live`: the report in a browser while the session runs, by Drover's own server.
//!
//! The report is written anew after each round; beside it lies a small file with the run that is under way. The page
//! asks for both, tells the progress, and reloads itself when there is a newer report. The file goes with the
//! session: a page that does not find it any more is the last one.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lab::process::Interrupt;
use lab::report::{PAGE, PROGRESS};
use lab::session::Clock;
use serde::Serialize;

use super::serve;
use crate::cli::stdout::stdout;
use server::Server;
use usage::duration::in_words;

/// How often a session that has ended looks whether its reader has, too.
const LOOK: Duration = Duration::from_millis(200);

/// A server of the folder of all sessions, and the file that tells the progress.
#[derive(Debug)]
pub(super) struct Live {
    server: Server,
    file: PathBuf,
}

/// What the page reads.
#[derive(Debug, Serialize)]
struct Contents<'a> {
    /// The runs that have ended, and all of them.
    done: usize,
    of: usize,
    /// How long the others may take, in words.
    left: &'a str,
    /// The experiment and cell of the run that is under way.
    running: &'a str,
}

impl Live {
    /// Serves the folder of all sessions, which is created, and prints the report's address.
    ///
    /// # Errors
    /// What the file system and the kernel say.
    pub(super) fn start(out: &Path, listen: SocketAddr) -> anyhow::Result<Live> {
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        let server = serve::start(out, listen).context("--live")?;
        for address in server.addresses() {
            writeln!(stdout(), "Live: http://{address}/{PAGE}")?;
        }
        stdout().flush()?;
        Ok(Live { server, file: out.join(PROGRESS) })
    }

    /// Tells which run begins.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn begins(&self, running: &str, clock: &Clock) -> io::Result<()> {
        let (done, of) = clock.runs();
        let left = in_words(clock.remaining());
        let text = serde_json::to_vec(&Contents { done, of, left: &left, running })?;
        // Renamed, so that no reader finds a part of it.
        let unfinished = self.file.with_extension("new");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, &self.file)
    }

    /// Tells that the session has ended, and serves on until the user ends it.
    ///
    /// # Errors
    /// What stdout says.
    pub(super) fn end(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let _ = fs::remove_file(&self.file);
        if !interrupt.is_set() {
            writeln!(stdout(), "The report stays there until Ctrl-C.")?;
            stdout().flush()?;
        }
        while !interrupt.is_set() {
            std::thread::sleep(LOOK);
        }
        self.server.stopper().stop();
        self.server.wait()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A session that has failed is over, too.
        let _ = fs::remove_file(&self.file);
    }
}
