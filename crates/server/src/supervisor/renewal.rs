//! The supervisor's side of certificates from a CA: the thread that gets them, what it has sent, and what is told of it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drover_sys::process::start_thread;
use drover_tls::certificate::Certificate;
use tracing::error;

use crate::acme::{
    AcmeNameFacts, AcmePlan, CertificateKeeper, ChallengeBoard, ChallengeReader, FromKeeper,
    ToKeeper,
};

/// When workers are given certificates again that they could not take.
const AGAIN: Duration = Duration::from_secs(60);

/// How long is waited for the thread at the end of the server, and how often it is looked whether it has ended.
const SOON: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// Certificates that are got from a CA.
pub(super) struct CertificateRenewal {
    board: Arc<Mutex<ChallengeBoard>>,
    /// To the thread, if there is one. It ends when this is dropped.
    keeper: Option<Sender<ToKeeper>>,
    thread: Option<JoinHandle<()>>,
    /// What the workers do not have yet, and from when on they can be given it.
    renewed: Vec<Arc<Certificate>>,
    due: Option<Instant>,
    /// How far the thread is.
    facts: Vec<AcmeNameFacts>,
}

impl std::fmt::Debug for CertificateRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateRenewal").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl CertificateRenewal {
    /// No thread yet, and no challenges.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(super) fn new() -> io::Result<CertificateRenewal> {
        let board = Arc::new(Mutex::new(ChallengeBoard::new()?));
        Ok(CertificateRenewal {
            board,
            keeper: None,
            thread: None,
            renewed: Vec::new(),
            due: None,
            facts: Vec::new(),
        })
    }

    /// What workers read.
    pub(super) fn challenges(&self) -> ChallengeReader {
        self.board.lock().unwrap_or_else(PoisonError::into_inner).reader()
    }

    /// Has the thread do this from now on. `told`: the certificates that the workers have. What the thread sends goes to `hear`.
    pub(super) fn plan(
        &mut self,
        plan: AcmePlan,
        told: Vec<Arc<Certificate>>,
        hear: impl Fn(FromKeeper) + Send + 'static,
    ) {
        let sent = self.keeper.as_ref().map(|it| it.send(ToKeeper::Plan(Box::new(plan.clone()))));
        if matches!(sent, Some(Ok(()))) {
            return;
        }
        let (sender, inbox) = channel();
        let board = Arc::clone(&self.board);
        let keeper =
            CertificateKeeper { plan, board, inbox, tell: hear, told, heard: Vec::new().into() };
        match start_thread("acme", move || keeper.run()) {
            Ok(thread) => (self.keeper, self.thread) = (Some(sender), Some(thread)),
            Err(reason) => {
                error!("--acme: no thread can be started, and no certificate renewed: {reason}")
            }
        }
    }

    /// The user may have changed something outside of the configuration, such as a name's address.
    pub(super) fn hurry(&self) {
        // It fails for a thread that has ended.
        self.keeper.iter().for_each(|keeper| drop(keeper.send(ToKeeper::Hurry)));
    }

    /// Ends the thread when it comes to it: another server asks the CA.
    pub(super) fn end(&mut self) {
        (self.keeper, self.due) = (None, None);
        self.renewed.clear();
    }

    /// Ends the thread and waits until it has noted that it gave up, but not for long: otherwise its attempt counts as a failure, and the
    /// next server waits for minutes.
    pub(super) fn finish(&mut self) {
        self.end();
        let until = Instant::now() + SOON;
        while self.thread.as_ref().is_some_and(|it| !it.is_finished()) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Hears the thread. Returns whether something is told of it that was not told before.
    pub(super) fn hear(&mut self, heard: FromKeeper) -> bool {
        match heard {
            FromKeeper::Certificates(renewed) => {
                self.renewed.extend(renewed);
                self.due = Some(Instant::now());
                false
            }
            FromKeeper::Facts(facts) => {
                let is_new = self.facts != facts;
                self.facts = facts;
                is_new
            }
        }
    }

    pub(super) fn facts(&self) -> &[AcmeNameFacts] {
        &self.facts
    }

    /// When workers can be given certificates.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The certificates that workers can be given now.
    pub(super) fn take_due(&mut self) -> Option<Vec<Arc<Certificate>>> {
        self.due.filter(|due| *due <= Instant::now())?;
        self.due = None;
        Some(std::mem::take(&mut self.renewed))
    }

    /// The workers could not take these.
    pub(super) fn put_off(&mut self, renewed: Vec<Arc<Certificate>>) {
        // Those that have come meanwhile are newer.
        self.renewed.splice(0..0, renewed);
        self.due = Some(Instant::now() + AGAIN);
    }
}
