//! `--live`: the report in a browser while the session runs, by Drover's own server.
//!
//! The session writes its report anew after each round. Beside the report, `progress.json` tells which run is under
//! way. The page asks for both files, shows the progress, and reloads itself when there is a newer report. At the end
//! of the session `progress.json` says that the session has ended, and the file is removed when the server stops. A
//! page without that file takes the session for ended.

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use drover_lab::process::Interrupt;
use drover_lab::report::PAGE;
use drover_lab::session::SessionClock;

use super::progress_file::{Contents, ProgressFile};
use crate::cli::lab::serve;
use crate::cli::stdout::stdout;
use drover_server::Server;
use drover_usage::duration::in_words;

/// How often a session that has ended looks whether its reader has, too.
const LOOK: Duration = Duration::from_millis(200);

/// A server of the folder of all sessions, and the file that tells the progress.
#[derive(Debug)]
pub(in crate::cli::lab) struct Live {
    server: Server,
    file: ProgressFile,
    /// Whether the address is printed. It is printed once the report and `progress.json` of this session exist.
    is_told: Cell<bool>,
}

impl Live {
    /// Serves the folder of all sessions, which is created.
    ///
    /// # Errors
    /// What the file system and the kernel say.
    pub(in crate::cli::lab) fn start(out: &Path, listen: SocketAddr) -> anyhow::Result<Live> {
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        let server = serve::start(out, listen).context("--live")?;
        Ok(Live { server, file: ProgressFile::of(out), is_told: Cell::new(false) })
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
    pub(in crate::cli::lab) fn begins(
        &self,
        running: &str,
        clock: &SessionClock,
    ) -> io::Result<()> {
        let (done, of) = clock.runs();
        let left = in_words(clock.remaining());
        self.file.write(&Contents { done, of, left: &left, running, has_ended: false })?;
        self.tell_address()
    }

    /// Tells that the session has ended, and serves on until the user ends it.
    ///
    /// # Errors
    /// What the file system and stdout say.
    pub(in crate::cli::lab) fn end(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        self.file.write(&Contents { has_ended: true, ..Contents::default() })?;
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
