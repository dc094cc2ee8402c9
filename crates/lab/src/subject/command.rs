//! A subject that is any server, started by its command.

use super::{HttpAddress, Running, START, Scene, Subject, wait_until_ready};
use crate::failure::Failure;
use crate::process::Child;
use crate::spec;
use crate::wire::WireEnd;

/// A server of which the lab knows only the command. It may have children, or be a daemon.
#[derive(Debug)]
pub struct Command<'a> {
    /// The subject's description.
    pub subject: &'a spec::SubjectSpec,
    /// The program and its arguments, with placeholders.
    pub words: &'a [String],
}

impl Subject for Command<'_> {
    fn start(&self, scene: &Scene<'_>) -> Result<Running, Failure> {
        let subject = &self.subject.over(scene.tls.is_some(), scene.is_http2);
        let words = subject.command.as_deref().unwrap_or(self.words);
        let port = scene.free_port()?;
        let values = scene.prepare(subject, Some(port))?;
        let words = values.fill_all(words)?;
        let mut launch = scene.launch(subject, &words, &values)?;
        // Known servers give up root's rights, and then may not read the run's own folder.
        launch.hides_root = subject.peer.is_some();
        let ready = subject.ready.as_ref();
        let within = match ready.and_then(|ready| ready.within.as_ref()) {
            Some(within) => within.resolve(scene.levels).map_err(Failure::failed)?,
            None => START,
        };
        let address = HttpAddress::new(scene.wire.address(), port, scene.tls.is_some());
        let there = scene.wire.enter(WireEnd::Subject)?;
        let mut process = Child::start(launch)?;
        wait_until_ready(&mut process, address, ready, within)?;
        drop(there);
        Ok(Running { process, address: Some(address) })
    }
}
