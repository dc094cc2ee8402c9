//! Other workers in place of those that accept connections: of another configuration, or of the one before.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::bail;
use tracing::error;

use super::{Supervisor, WorkerPlans, can_share, listeners_of};
use crate::config::Config;
use crate::listen::bind::bind;
use crate::output_files::OutputFiles;
use crate::processors;
use crate::reload::{NextConfig, RETIRED_MOST, tell_reload, tell_reopening};
use crate::supervisor::process_crew::ProcessCrew;
use crate::supervisor::renewal::CertificateRenewal;
use crate::supervisor::service_manager::ServiceManager;

impl Supervisor {
    /// Opens the access log anew, and goes on with another configuration if there is one.
    pub(super) fn reload(&mut self) {
        let has_log =
            self.crews.values_mut().filter_map(|crew| crew.reopen_log().then_some(())).count();
        if self.hand_over.is_done() {
            self.reloader = None;
        }
        tell_reopening(has_log > 0, self.reloader.is_some());
        let Some(mut reloader) = self.reloader.take() else { return };
        self.manager.iter().for_each(ServiceManager::is_reloading);
        let outcome = reloader.read(&self.fixed).and_then(|next| {
            let Some(NextConfig { config, arguments, described, status }) = next else {
                return Ok(None);
            };
            self.check_certificates(&config)?;
            self.go_on_with(config, arguments.clone())?;
            reloader.took(arguments);
            Ok(Some((described, status)))
        });
        self.reloader = Some(reloader);
        self.renewal.iter().for_each(CertificateRenewal::hurry);
        if matches!(outcome, Ok(Some(_))) {
            self.plan_renewal();
        }
        if let Some(admin) = &mut self.admin {
            match (&outcome, self.crews.get(&self.serving)) {
                (Err(reason), _) => admin.reload_refused(reason),
                (Ok(Some(_)), Some(crew)) => admin.reloaded(&crew.config),
                _ => {}
            }
        }
        tell_reload(outcome.as_ref().map(|next| next.as_ref().map(|(described, _)| &**described)));
        let status = outcome.ok().flatten().map(|(_, status)| status);
        self.manager.iter().for_each(|manager| manager.is_ready_again(status.as_deref()));
    }

    /// Refuses certificates that are worse than those in force.
    fn check_certificates(&self, next: &Config) -> anyhow::Result<()> {
        let before = self.crews.get(&self.serving).and_then(|crew| crew.config.tls.as_ref());
        match (before, &next.tls) {
            (Some(before), Some(next)) => next.may_succeed(before),
            _ => Ok(()),
        }
    }

    /// Has other workers, of `config`, take over from those that accept connections.
    pub(super) fn go_on_with(
        &mut self,
        config: Config,
        arguments: Vec<OsString>,
    ) -> anyhow::Result<()> {
        let before = self.serving;
        let Some(crew) = self.crews.get(&before) else { bail!("the server stops") };
        let old = WorkerPlans::of(crew);
        let together = can_share(&old.config, &config);
        if !together {
            self.retire(before);
        }
        self.until_left(|retired| !can_share(retired, &config))?;
        let succeeded = self.succeed(config, arguments);
        match (&succeeded, together) {
            (Ok(()), true) => self.retire(before),
            (Ok(()), false) | (Err(_), true) => {}
            // Nobody accepts connections: others of the old configuration go on.
            (Err(_), false) => self.go_on_as_before(old),
        }
        let retired = self.crews.iter_mut().filter(|(_, crew)| crew.has_retired());
        retired.rev().skip(RETIRED_MOST).for_each(|(_, crew)| crew.stop());
        succeeded
    }

    /// Has other workers, of the configuration before, accept connections, since nobody does.
    pub(super) fn go_on_as_before(&mut self, before: WorkerPlans) {
        let WorkerPlans { config, arguments } = before;
        if let Err(reason) = self.succeed((*config).clone(), arguments) {
            error!("cannot go on with the configuration before either: {reason:#}");
            self.stopping.store(true, Ordering::Relaxed);
        }
    }

    /// Starts workers of `config` on the sockets that the supervisor listens with.
    fn succeed(&mut self, mut config: Config, arguments: Vec<OsString>) -> anyhow::Result<()> {
        if config.pin {
            processors(config.workers)?;
        }
        config.tls_listeners = self.tls.clone();
        if config.acme.is_some() && self.renewal.is_none() {
            self.renewal = Some(CertificateRenewal::new()?);
        }
        config.challenges = self.renewal.as_ref().map(CertificateRenewal::challenges);
        config.tls.iter().for_each(|tls| tls.warn());
        let passing = config.on(self.sockets.all());
        let (made, sockets) = listeners_of(bind(&passing, self.among, &[])?, self.among);
        drop(passing);
        let number = self.serving + 1;
        let files = match self.crews.get(&self.serving) {
            Some(crew) => crew.files.succeed(&config)?,
            None => OutputFiles::open(&config)?,
        };
        let files = (files, self.sender.clone());
        let crew = ProcessCrew::new(Arc::new(config), number, arguments, made, files)?;
        let table = crew.counter_table.clone();
        self.start_crew(number, crew)?;
        self.sockets = sockets;
        self.serving = number;
        self.counters.succeed(table.clone());
        self.admin.iter_mut().for_each(|admin| admin.succeeded(number, &table));
        Ok(())
    }

    /// Waits until the retired workers whose configuration `must_leave` stop accepting. A worker may have been told long ago
    /// and not have read the message yet.
    ///
    /// # Errors
    /// The server is to stop, so that nobody waits for the sockets.
    pub(super) fn until_left(
        &mut self,
        must_leave: impl Fn(&Config) -> bool,
    ) -> anyhow::Result<()> {
        let is_here =
            |crew: &ProcessCrew| crew.has_retired() && !crew.has_left() && must_leave(&crew.config);
        while self.crews.values().any(is_here) {
            if self.is_stopping() {
                bail!("the server stops");
            }
            let message = self.inbox.recv()?;
            self.hear(message);
        }
        Ok(())
    }
}
