//! The thread that gets certificates from a CA and renews them.
//!
//! It is a thread of the supervisor, whose rights it needs to keep keys where only their owner reads them. The supervisor never
//! waits for it: it sends what it has, and the supervisor hands that to workers when it comes to it. The CA is the only peer; its
//! certificate is verified before anything else that it sends is read. Workers see challenges, and no key but those of
//! certificates.
//!
//! What is to be done follows from the files alone ([`drover_acme::AcmeState`]), which are read again each time: another server of
//! the same files may have renewed a certificate. One of the servers asks the CA at a time.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_acme::{
    AcmeClient, AcmeError, AcmeErrorKind, AttemptHistory, CaTransport, Challenge, ChallengeKind,
    ChallengeSolver, StateLock, StoppedWaiting, renewal_time,
};
use drover_tls::certificate::{Certificate, CertificateFiles};
use tracing::{error, info, warn};

use super::challenges::ChallengeBoard;
use super::facts::AcmeNameFacts;
use super::settings::AcmeSettings;

/// How long the thread sleeps at most: clocks are set, and machines sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// When it is looked again whether another server is done.
const OTHER_SERVER: Duration = Duration::from_secs(2);

/// When a folder that cannot be written is tried again.
const NO_STATE: Duration = Duration::from_secs(5 * 60);

/// How long the supervisor waits at most for certificates of a round that goes on.
const HAND_OVER_AFTER: Duration = Duration::from_secs(30);

/// What the thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmePlan {
    pub(crate) settings: AcmeSettings,
    /// The challenges that the server can answer, best first.
    pub(crate) kinds: Vec<ChallengeKind>,
}

/// What the thread is told. The end of the messages means: end.
#[derive(Debug)]
pub(crate) enum ToKeeper {
    /// Do this from now on.
    Plan(Box<AcmePlan>),
    /// The user has changed something: pauses after failures end, as far as the CA's limits allow.
    Hurry,
}

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum FromKeeper {
    /// Certificates that are new since the last message, each with its key.
    Certificates(Vec<Arc<Certificate>>),
    /// How far it is.
    Facts(Vec<AcmeNameFacts>),
}

/// The thread.
pub(crate) struct CertificateKeeper<T: Fn(FromKeeper)> {
    pub(crate) plan: AcmePlan,
    pub(crate) board: Arc<Mutex<ChallengeBoard>>,
    pub(crate) inbox: Receiver<ToKeeper>,
    /// Hears what there is.
    pub(crate) tell: T,
    /// What the workers are known to have.
    pub(crate) told: Vec<Arc<Certificate>>,
    /// What has come while the CA was waited for.
    pub(crate) heard: RefCell<Vec<ToKeeper>>,
}

/// What there is to do.
enum Due {
    /// These names, now.
    Now(Vec<String>),
    /// Nothing for so long.
    In(Duration),
}

/// What has become of it.
enum Work {
    /// Something was done: there may be more.
    Done,
    /// Nothing is to be done for so long.
    In(Duration),
    /// Nobody waits any more.
    GivenUp,
}

/// The end of the messages has come.
struct Ended;

/// How an attempt has ended. A failure has been logged.
enum AttemptEnd {
    /// There is a certificate.
    Issued,
    /// The CA has refused.
    Refused,
    /// The CA is away. The others would fail in the same way, each after its time-outs.
    Away(AcmeError),
    /// Nobody waits any more.
    GivenUp,
    /// The CA was not asked: attempts cannot be noted. Without notes, a server that is started again and again would use up what
    /// the CA allows.
    NotNoted,
}

impl<T: Fn(FromKeeper)> CertificateKeeper<T> {
    /// Gets and renews certificates until the messages end. A panic ends no more than what is being done.
    pub(crate) fn run(mut self) {
        let AcmeSettings { account, names, .. } = &self.plan.settings;
        info!("--acme: certificates for {} from {}", names.join(", "), account.directory);
        loop {
            if catch_unwind(AssertUnwindSafe(|| while let Ok(()) = self.turn() {})).is_ok() {
                return;
            }
            error!(
                "--acme: the thread that gets certificates panicked: a defect; it begins again in 5 minutes"
            );
            self.board.lock().unwrap_or_else(PoisonError::into_inner).clear();
            if self.wait(NO_STATE).is_err() {
                return;
            }
        }
    }

    /// Does what is due, or waits for it.
    fn turn(&mut self) -> Result<(), Ended> {
        for message in self.heard.take() {
            self.hear(message);
        }
        let pause = match self.work() {
            Ok(Work::Done) => return Ok(()),
            Ok(Work::In(pause)) => pause,
            Ok(Work::GivenUp) => return Err(Ended),
            Err(error) => {
                warn!("{error}; trying again in {}", humantime::format_duration(NO_STATE));
                NO_STATE
            }
        };
        self.wait(pause.min(LOOK_AGAIN))
    }

    /// Waits for a message, but not for longer than `pause`.
    fn wait(&mut self, pause: Duration) -> Result<(), Ended> {
        match self.inbox.recv_timeout(pause) {
            Ok(message) => {
                self.hear(message);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    /// Does what is due.
    fn work(&mut self) -> Result<Work, AcmeError> {
        // Before the files are read: what another server is doing is noted there as a failure until it is done.
        let lock = self.plan.settings.state.lock()?;
        let due = self.look()?;
        Ok(match (due, lock) {
            (Due::In(pause), Some(_)) => Work::In(pause),
            (_, None) => Work::In(OTHER_SERVER),
            (Due::Now(names), Some(lock)) => match self.round(&names, &lock) {
                Ok(AttemptEnd::NotNoted) => Work::In(NO_STATE),
                Ok(_) => Work::Done,
                Err(Ended) => Work::GivenUp,
            },
        })
    }

    fn hear(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Plan(plan) => self.plan = *plan,
            ToKeeper::Hurry => {
                let state = &self.plan.settings.state;
                for name in &self.plan.settings.names {
                    let work = state.of_name(name);
                    // What cannot be read or written is told when it is due.
                    if let Ok(mut history) = work.history()
                        && history.failures() > 0
                    {
                        history.hurry(SystemTime::now());
                        let _told_later = work.save_history(&history);
                    }
                }
            }
        }
    }

    /// Reads the files: hands over certificates that are new, tells how far each name is, and finds what is due.
    fn look(&mut self) -> Result<Due, AcmeError> {
        let now = SystemTime::now();
        let (mut facts, mut due, mut soonest) = (Vec::new(), Vec::new(), LOOK_AGAIN);
        let mut renewed = Vec::new();
        for name in &self.plan.settings.names {
            let certificate = read_certificate(&self.plan.settings, name);
            let wanted = certificate.as_deref().map_or(UNIX_EPOCH, renewal_of);
            if let Some(certificate) = certificate
                && !self.told.contains(&certificate)
            {
                renewed.push(certificate);
            }
            let history = self.plan.settings.state.of_name(name).history()?;
            let next = history.next(wanted, now);
            match next.duration_since(now) {
                Ok(pause) if !pause.is_zero() => soonest = soonest.min(pause),
                _ => due.push(name.clone()),
            }
            facts.push(facts_of(name, next.max(now), &history));
        }
        self.hand_over(renewed);
        (self.tell)(FromKeeper::Facts(facts));
        Ok(if due.is_empty() { Due::In(soonest) } else { Due::Now(due) })
    }

    fn hand_over(&mut self, renewed: Vec<Arc<Certificate>>) {
        if renewed.is_empty() {
            return;
        }
        for certificate in &renewed {
            self.told.retain(|it| it.files() != certificate.files());
            self.told.push(Arc::clone(certificate));
        }
        (self.tell)(FromKeeper::Certificates(renewed));
    }

    /// Asks the CA for certificates for these names, one after the other. The lock keeps other servers from doing so.
    fn round(&self, names: &[String], _lock: &StateLock) -> Result<AttemptEnd, Ended> {
        let began = Instant::now();
        let mut client = None;
        for name in names {
            // Another server may have been quicker.
            let now = SystemTime::now();
            if read_certificate(&self.plan.settings, name).is_some_and(|it| renewal_of(&it) > now) {
                continue;
            }
            match self.attempt(name, &mut client) {
                AttemptEnd::Issued | AttemptEnd::Refused => {}
                AttemptEnd::GivenUp => return Err(Ended),
                AttemptEnd::NotNoted => return Ok(AttemptEnd::NotNoted),
                AttemptEnd::Away(error) => {
                    self.put_off(names, name, &error);
                    return Ok(AttemptEnd::Away(error));
                }
            }
            if began.elapsed() >= HAND_OVER_AFTER {
                break;
            }
        }
        Ok(AttemptEnd::Issued)
    }

    /// Asks for one certificate, and notes how that went.
    fn attempt(&self, name: &str, client: &mut Option<AcmeClient>) -> AttemptEnd {
        let work = self.plan.settings.state.of_name(name);
        let noted = work.history().and_then(|mut history| {
            // By turns: where one kind cannot be reached, the other may be.
            let mut kinds = self.plan.kinds.clone();
            let turns = history.failures() as usize % kinds.len().max(1);
            kinds.rotate_left(turns);
            history.begin(SystemTime::now());
            work.save_history(&history).map(|()| (history, kinds))
        });
        let (mut history, kinds) = match noted {
            Ok(noted) => noted,
            Err(error) => {
                warn!("{error}; the CA is not asked");
                return AttemptEnd::NotNoted;
            }
        };
        let outcome = self.issue(name, &kinds, client);
        let end = match outcome {
            Ok(certificate) => {
                history.succeeded();
                let renewal = humantime::format_rfc3339_seconds(renewal_of(&certificate));
                let days = certificate.days_left(SystemTime::now());
                info!("--acme: {name} has a certificate for {days} days; renewal at {renewal}");
                AttemptEnd::Issued
            }
            Err(error) if error.is_given_up() => {
                history.given_up();
                AttemptEnd::GivenUp
            }
            Err(error) => {
                self.failed(name, &mut history, &error);
                match error.kind() {
                    AcmeErrorKind::Unreachable(_) => AttemptEnd::Away(error),
                    _ => AttemptEnd::Refused,
                }
            }
        };
        match work.save_history(&history) {
            Ok(()) => end,
            // As it was noted before: the attempt has failed.
            Err(error) => {
                warn!("{error}");
                end
            }
        }
    }

    fn failed(&self, name: &str, history: &mut AttemptHistory, error: &AcmeError) {
        let now = SystemTime::now();
        let mut random = [0];
        // Without random bytes all servers come back at the same time.
        let _none = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        history.failed(now, &error.to_string(), error.retry_after(), random[0]);
        let pause = history.next(UNIX_EPOCH, now).duration_since(now).unwrap_or_default();
        let pause = humantime::format_duration(Duration::from_secs(pause.as_secs()));
        let meanwhile = match read_certificate(&self.plan.settings, name) {
            None => "a self-signed certificate is shown".to_owned(),
            Some(old) => match old.days_left(now) {
                days @ 0.. => format!("the old certificate is valid for {days} more days"),
                _ => "the old certificate has expired".to_owned(),
            },
        };
        warn!("--acme: no certificate: {error}; {meanwhile}; trying again in {pause}");
    }

    /// Notes for the names behind `name`, which are due too, that the CA is away.
    fn put_off(&self, names: &[String], name: &str, error: &AcmeError) {
        for other in names.iter().skip_while(|it| *it != name).skip(1) {
            let work = self.plan.settings.state.of_name(other);
            if let Ok(mut history) = work.history() {
                history.begin(SystemTime::now());
                history.failed(SystemTime::now(), &error.to_string(), error.retry_after(), 0);
                let _told_later = work.save_history(&history);
            }
        }
    }

    /// Gets and keeps a certificate.
    fn issue(
        &self,
        name: &str,
        kinds: &[ChallengeKind],
        client: &mut Option<AcmeClient>,
    ) -> Result<Arc<Certificate>, AcmeError> {
        let client = match client {
            Some(client) => client,
            None => client.insert(self.connect()?),
        };
        let kind = kinds.first().map_or("no challenge".to_owned(), |kind| kind.to_string());
        info!("--acme: asking for a certificate for {name} ({kind})");
        let mut solver = BoardSolver { board: &self.board, inbox: &self.inbox, heard: &self.heard };
        let mut issued = client.issue(name, kinds, &mut solver);
        if issued.as_ref().is_err_and(|error| error.is_problem("accountDoesNotExist")) {
            client.forget_account();
            self.register(client)?;
            issued = client.issue(name, kinds, &mut solver);
        }
        let issued = issued?;
        let text = issued.to_pem();
        let unusable = |why: &dyn std::fmt::Display| {
            AcmeError::local(
                name,
                format!("the CA has issued a certificate that cannot be used: {why}"),
            )
        };
        let certificate = Certificate::of(files_of(&self.plan.settings, name), text.clone(), text);
        let certificate = certificate.map_err(|error| unusable(&format!("{error:#}")))?;
        let now = SystemTime::now();
        if !certificate.names().iter().any(|it| it == name) {
            return Err(unusable(&"it is for another name"));
        }
        if let Some(problem) = certificate.problem(now).filter(|_| !certificate.is_valid_at(now)) {
            return Err(unusable(&problem));
        }
        self.plan.settings.state.of_name(name).save_certificate(&issued)?;
        Ok(Arc::new(certificate))
    }

    fn connect(&self) -> Result<AcmeClient, AcmeError> {
        let AcmeSettings { account: options, trust, state, .. } = &self.plan.settings;
        let (key, account) = state.account()?;
        let transport = CaTransport::new(trust)?;
        let mut client = AcmeClient::connect(transport, &options.directory, key, account)?;
        self.register(&mut client)?;
        Ok(client)
    }

    /// Sees to it that the CA knows the account, and that it is kept.
    fn register(&self, client: &mut AcmeClient) -> Result<(), AcmeError> {
        let AcmeSettings { account: options, state, .. } = &self.plan.settings;
        let before = client.account().cloned();
        client.register(&options.mail)?;
        if client.account() != before.as_ref() {
            let terms = client.terms().map(|it| format!(", which means to agree to {it}"));
            info!("--acme: registered {} with the CA{}", options.mail, terms.unwrap_or_default());
            state.save_account_of(client)?;
        }
        Ok(())
    }
}

fn facts_of(name: &str, next: SystemTime, history: &AttemptHistory) -> AcmeNameFacts {
    AcmeNameFacts {
        name: name.to_owned(),
        next_attempt_at_s: next.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        failures: history.failures(),
        last_error: history.last_error().map(crate::json_messages::short),
    }
}

/// Where the certificate for a name is kept.
pub(crate) fn files_of(settings: &AcmeSettings, name: &str) -> CertificateFiles {
    let path = settings.state.certificate(name);
    CertificateFiles { certificate: path.clone(), key: path }
}

/// The certificate for a name that is kept; `None`: there is none that can be used.
fn read_certificate(settings: &AcmeSettings, name: &str) -> Option<Arc<Certificate>> {
    let files = files_of(settings, name);
    let text = std::fs::read_to_string(&files.certificate).ok()?;
    let certificate = Certificate::of(files, text.clone(), text).ok()?;
    certificate.names().iter().any(|it| it == name).then(|| Arc::new(certificate))
}

/// When a certificate is to be renewed.
fn renewal_of(certificate: &Certificate) -> SystemTime {
    let seed = certificate.text().as_bytes();
    renewal_time(certificate.valid_from(), certificate.valid_until(), seed)
}

/// Has workers show challenges.
struct BoardSolver<'k> {
    board: &'k Mutex<ChallengeBoard>,
    inbox: &'k Receiver<ToKeeper>,
    heard: &'k RefCell<Vec<ToKeeper>>,
}

impl ChallengeSolver for BoardSolver<'_> {
    fn show(&mut self, challenge: &Challenge) -> Result<(), String> {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.show(challenge).map_err(|error| format!("cannot show the challenge: {error}"))
    }

    fn withdraw(&mut self, challenge: &Challenge) {
        self.board.lock().unwrap_or_else(PoisonError::into_inner).withdraw(challenge);
    }

    fn pause(&mut self, time: Duration) -> Result<(), StoppedWaiting> {
        let end = Instant::now() + time;
        loop {
            match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                // It counts when this order is through.
                Ok(message) => self.heard.borrow_mut().push(message),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(StoppedWaiting),
            }
        }
    }
}
