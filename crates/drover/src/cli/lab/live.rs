//! `--live`: the report in a browser while the session runs, by Drover's own server.
//!
//! The report is written anew after each round; beside it lies a small file with the run that is under way. The page
//! asks for both, tells the progress, and reloads itself when there is a newer report. At the end the file says so,
//! and it goes with the server: a page that does not find it follows nobody.

use std::cell::Cell;
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
    /// Whether the address is printed: not before there is a page of this session, and one that can tell that the
    /// session goes on.
    is_told: Cell<bool>,
}

/// What the page reads.
#[derive(Debug, Default, Serialize)]
struct Contents<'a> {
    /// The runs that have ended, and all of them.
    done: usize,
    of: usize,
    /// How long the others may take, in words.
    left: &'a str,
    /// The experiment and cell of the run that is under way.
    running: &'a str,
    /// Whether the session is over, and its last report written.
    has_ended: bool,
}

impl Live {
    /// Serves the folder of all sessions, which is created.
    ///
    /// # Errors
    /// What the file system and the kernel say.
    pub(super) fn start(out: &Path, listen: SocketAddr) -> anyhow::Result<Live> {
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        let server = serve::start(out, listen).context("--live")?;
        Ok(Live { server, file: out.join(PROGRESS), is_told: Cell::new(false) })
    }

    /// Prints the report's address, once.
    fn tell_address(&self) -> io::Result<()> {
        if self.is_told.replace(true) {
            return Ok(());
        }
        let mut out = stdout();
        for address in self.server.addresses() {
            writeln!(out, "Live: http://{address}/{PAGE}")?;
        }
        out.flush()
    }

    /// Tells which run, or which experiment, begins; the first time, where the report can be read.
    ///
    /// # Errors
    /// What the file system and stdout say.
    pub(super) fn begins(&self, running: &str, clock: &Clock) -> io::Result<()> {
        let (done, of) = clock.runs();
        let left = in_words(clock.remaining());
        self.write(&Contents { done, of, left: &left, running, has_ended: false })?;
        self.tell_address()
    }

    fn write(&self, contents: &Contents<'_>) -> io::Result<()> {
        let text = serde_json::to_vec(contents)?;
        // Renamed, so that no reader finds a part of it.
        let unfinished = self.file.with_extension("new");
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, &self.file)
    }

    /// Tells that the session has ended, and serves on until the user ends it.
    ///
    /// # Errors
    /// What the file system and stdout say.
    pub(super) fn end(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        self.write(&Contents { has_ended: true, ..Contents::default() })?;
        if !interrupt.is_set() {
            self.tell_address()?;
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
