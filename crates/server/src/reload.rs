//! A configuration in place of another one, while the server runs.
//!
//! Other workers with the new configuration take the listening sockets over. Those before accept nothing any more, answer
//! the requests of their connections, and end with the last of them. Some settings are fixed for the life of the
//! server: the addresses, the user, and files that only one set of workers can write.

use std::ffi::OsString;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use tracing::{error, info};

use crate::auth::Auth;
use crate::config::{Config, Listen};
use crate::status::counters::CountersFile;
use crate::tls::TlsSettings;

/// How many sets of workers may be left with connections from before a reload. At a further reload the oldest must end
/// within the grace.
pub(crate) const RETIRED_MOST: usize = 8;

/// A configuration to go on with.
#[derive(Debug)]
pub struct NextConfig {
    /// What the server is to be like. Its addresses must be those that the server was started with.
    pub config: Config,
    /// The arguments of this program that make a server of the same configuration, for worker processes.
    pub arguments: Vec<OsString>,
    /// What is served and how, for the log.
    pub described: String,
    /// What is shown to those who ask a service manager.
    pub status: String,
}

/// Reads the configuration again.
type ReadAgain = dyn Fn() -> anyhow::Result<NextConfig> + Send;

/// How a server gets the configuration to go on with.
pub struct Reloader {
    read: Box<ReadAgain>,
    /// [`NextConfig::arguments`] of the configuration in force, and what its other files held.
    in_force: (Vec<OsString>, FilesRead),
    /// What they held when the configuration was read last.
    files_read: FilesRead,
}

/// What a configuration is made of beside its own file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilesRead {
    users: Vec<Arc<Auth>>,
    tls: Option<Arc<TlsSettings>>,
}

impl FilesRead {
    /// Those of `config`.
    #[must_use]
    pub fn of(config: &Config) -> FilesRead {
        FilesRead { users: config.users().cloned().collect(), tls: config.tls.clone() }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tls.is_none()
    }
}

impl Reloader {
    /// For a server of these files whose workers would be started with `arguments`. `read` reads the configuration again.
    pub fn new(
        arguments: Vec<OsString>,
        files: FilesRead,
        read: impl Fn() -> anyhow::Result<NextConfig> + Send + 'static,
    ) -> Reloader {
        let files_read = FilesRead::default();
        Reloader { read: Box::new(read), in_force: (arguments, files), files_read }
    }

    /// The configuration to go on with, if it is another one and the server can get it. A panic is an error too: a defect in
    /// reading a configuration must not end the server that another one has started.
    pub(crate) fn read(&mut self, fixed: &FixedSettings) -> anyhow::Result<Option<NextConfig>> {
        let read = AssertUnwindSafe(|| self.read_it(fixed));
        catch_unwind(read).unwrap_or_else(|_| Err(anyhow!("reading it panicked: a defect")))
    }

    fn read_it(&mut self, fixed: &FixedSettings) -> anyhow::Result<Option<NextConfig>> {
        let next = (self.read)()?;
        self.files_read = FilesRead::of(&next.config);
        if (&next.arguments, &self.files_read) == (&self.in_force.0, &self.in_force.1) {
            return Ok(None);
        }
        fixed.check(&next.config)?;
        Ok(Some(next))
    }

    /// The server goes on with certificates that it has got itself.
    pub(crate) fn renewed(&mut self, tls: Arc<TlsSettings>) {
        self.in_force.1.tls = Some(tls);
    }

    /// The server goes on with the configuration of these arguments.
    pub(crate) fn took(&mut self, arguments: Vec<OsString>) {
        self.in_force = (arguments, std::mem::take(&mut self.files_read));
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloader")
    }
}

/// Logs what SIGHUP does to a server with or without an access log, and a configuration that can be read again.
pub(crate) fn tell_reopening(has_log: bool, has_config: bool) {
    match (has_log, has_config) {
        (true, true) => {
            info!("SIGHUP: --access-log is opened anew, and the configuration read again")
        }
        (true, false) => info!("SIGHUP: --access-log is opened anew"),
        (false, true) => info!("SIGHUP: the configuration is read again"),
        (false, false) => info!(
            "SIGHUP is ignored: there is no --access-log to reopen, and no --config, --auth or --tls-cert to read again"
        ),
    }
}

/// Logs how a reload went: how the server goes on, or why not; `None`: the configuration is as it was.
pub(crate) fn tell_reload(outcome: Result<Option<&str>, &anyhow::Error>) {
    match outcome {
        Ok(Some(described)) => info!("reloaded: serving {described}"),
        Ok(None) => info!("the configuration is as it was"),
        Err(reason) => error!("cannot reload: {reason:#}; serving as before"),
    }
}

/// The settings that a server keeps for its life.
#[derive(Debug)]
pub(crate) struct FixedSettings {
    /// Flags, with their values.
    flags: [(&'static str, String); 10],
    counters: CountersFile,
}

impl FixedSettings {
    /// Those of a server of `config`.
    pub(crate) fn of(config: &Config) -> FixedSettings {
        let names = |all: &[Listen]| all.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        let flags = [
            ("--listen", format!("{:?}", names(&config.listen))),
            // Which addresses speak TLS follows from their names, and from this.
            ("--tls-cert", format!("{}", config.tls.is_some())),
            ("--admin", format!("{:?}", names(config.admin.as_slice()))),
            ("--admin-hosts", format!("{:?}", config.admin_hosts)),
            ("--user", format!("{:?}", config.user)),
            ("--no-sandbox", format!("{:?}", config.sandbox)),
            ("--counters", format!("{:?}", config.counters)),
            ("--take-over", format!("{:?}", config.take_over)),
            ("--trace", format!("{:?}", config.trace)),
            ("--record-events", format!("{:?}", config.record_events)),
        ];
        let (path, user) = (config.counters.clone(), config.user.clone());
        FixedSettings { flags, counters: CountersFile { path, user } }
    }

    /// The file that the counters are written to.
    pub(crate) fn counters_file(&self) -> CountersFile {
        self.counters.clone()
    }

    /// Whether a server of these settings can go on with `next`.
    fn check(&self, next: &Config) -> anyhow::Result<()> {
        let next = (next.trace.is_some() || next.record_events.is_some(), FixedSettings::of(next));
        let mut pairs = self.flags.iter().zip(&next.1.flags);
        if let Some(((flag, _), _)) = pairs.find(|(before, after)| before != after) {
            bail!("{flag} cannot change while the server runs; start another one with --take-over");
        }
        if next.0 {
            bail!(
                "--trace and --record-events write one file for the life of the workers; start another server"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::ContentSource;

    /// The server goes on as before, and the next configuration counts.
    #[test]
    fn a_panic_in_reading_the_configuration_is_a_refusal() {
        let config = || {
            let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
            Config::new(ContentSource::Fixed(1), mechanism)
        };
        let next = move |argument: &str| NextConfig {
            config: config(),
            arguments: vec![argument.into()],
            described: String::new(),
            status: String::new(),
        };
        let reads = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&reads);
        let read = move || match counts.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => panic!("a test of panics"),
            1 => Ok(next("after")),
            _ => Ok(next("before")),
        };
        let mut reloader = Reloader::new(vec!["before".into()], FilesRead::default(), read);
        let fixed = FixedSettings::of(&config());
        let panics = |reloader: &mut Reloader| {
            let told = reloader.read(&fixed).unwrap_err().to_string();
            assert!(told.contains("panicked"), "{told}");
        };
        panics(&mut reloader);
        assert_eq!(reloader.read(&fixed).unwrap().unwrap().arguments, ["after"]);
        panics(&mut reloader);
        // What is in force is as it was, since nobody took the other one.
        assert!(reloader.read(&fixed).unwrap().is_none());
        assert_eq!(reads.load(Ordering::Relaxed), 4);
    }
}
