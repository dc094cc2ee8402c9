//! What one worker knows of who is who.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_http1::{Refusal, Request, Status};
use drover_mech::Key;
use drover_mech::net::Net;

use crate::auth::credentials::{Credentials, CredentialsTag};
use crate::auth::password_file::Auth;
use crate::auth::verifiers::{VerifiedTags, VerifierJob};
use crate::lookup::pending::PendingAnswer;

/// For how long credentials count as verified.
const REMEMBERED_FOR: Duration = Duration::from_secs(5 * 60);

/// How many verified credentials a worker remembers.
const REMEMBERED_MOST: usize = 1024;

/// Nobody, or the wrong password.
const UNAUTHORIZED: Refusal = Refusal { status: Status::Unauthorized, reason: "" };

const TOO_MANY: Refusal =
    Refusal { status: Status::ServiceUnavailable, reason: "too many passwords are being verified" };

/// Tells a worker which requests are those of users.
pub(crate) struct Authenticator {
    auth: Arc<Auth>,
    /// Where results come in; `None`: nothing takes them yet.
    results: Option<Arc<VerifiedTags>>,
    /// By the prefix of the tag.
    remembered: HashMap<u64, VerifiedUser>,
    /// What the pool has been given and not answered yet: as many at most as its queue and its threads hold.
    pending: Vec<(CredentialsTag, Rc<PendingAnswer>, Rc<[u8]>)>,
}

/// Credentials that were right.
struct VerifiedUser {
    tag: CredentialsTag,
    name: Rc<[u8]>,
    until: Instant,
}

/// Whose request it is.
pub(crate) enum AuthOutcome {
    /// This user's.
    Granted(Rc<[u8]>),
    Refused(Refusal),
    /// That is being found out.
    Pending(Rc<PendingAnswer>),
}

impl Authenticator {
    pub(crate) fn new(auth: Arc<Auth>) -> Authenticator {
        let (remembered, pending) = (HashMap::new(), Vec::new());
        Authenticator { auth, results: None, remembered, pending }
    }

    /// From now on, results come in `results`; [`Authenticator::complete`] has to be called then.
    pub(crate) fn verify_by(&mut self, results: Arc<VerifiedTags>) {
        self.results = Some(results);
    }

    /// Whose request of the connection `key` it is. Where its credentials have just been found wrong, the caller knows
    /// ([`PendingAnswer::refusal_of`]).
    pub(crate) fn check(&mut self, request: &Request<'_>, key: Key, now: Instant) -> AuthOutcome {
        let Some((credentials, tag)) = self.credentials(request) else {
            return AuthOutcome::Refused(UNAUTHORIZED);
        };
        if let Some(user) = self.user_of(&tag, now) {
            return AuthOutcome::Granted(user);
        }
        if let Some((_, answer, _)) = self.pending.iter().find(|(other, ..)| other.is(&tag)) {
            answer.join(key);
            return AuthOutcome::Pending(Rc::clone(answer));
        }
        let Some(results) = self.results.clone() else { return AuthOutcome::Refused(TOO_MANY) };
        let name = credentials.name().into();
        if !self.auth.pool().push(VerifierJob { credentials, tag, results }) {
            return AuthOutcome::Refused(TOO_MANY);
        }
        let answer = PendingAnswer::new(tag.bytes(), key);
        self.pending.push((tag, Rc::clone(&answer), name));
        AuthOutcome::Pending(answer)
    }

    /// The user whose request it is, if its credentials are remembered as right.
    pub(crate) fn recognize(&self, request: &Request<'_>, now: Instant) -> Option<Rc<[u8]>> {
        let (_, tag) = self.credentials(request)?;
        self.user_of(&tag, now)
    }

    /// The credentials of a request, if it has some.
    fn credentials(&self, request: &Request<'_>) -> Option<(Credentials, CredentialsTag)> {
        let credentials = request.field("Authorization").and_then(Credentials::of)?;
        let tag = credentials.tag(self.auth.pool().key());
        Some((credentials, tag))
    }

    fn user_of(&self, tag: &CredentialsTag, now: Instant) -> Option<Rc<[u8]>> {
        let verified = self.remembered.get(&tag.prefix());
        let verified = verified.filter(|it| it.tag.is(tag) && now < it.until);
        verified.map(|it| Rc::clone(&it.name))
    }

    /// Takes the results of the pool, and resumes the connections that wait for them.
    pub(crate) fn complete(&mut self, net: &Net) {
        let results = self.results.as_ref().map(|results| results.take());
        for (tag, is_right) in results.unwrap_or_default() {
            let Some(place) = self.pending.iter().position(|(other, ..)| other.is(&tag)) else {
                continue;
            };
            let (tag, answer, name) = self.pending.swap_remove(place);
            if is_right {
                self.remember(
                    VerifiedUser { tag, name, until: net.now() + REMEMBERED_FOR },
                    net.now(),
                );
            }
            answer.finish_without_file((!is_right).then_some(UNAUTHORIZED), net);
        }
    }

    fn remember(&mut self, verified: VerifiedUser, now: Instant) {
        if self.remembered.len() >= REMEMBERED_MOST {
            self.remembered.retain(|_, other| now < other.until);
        }
        if self.remembered.len() >= REMEMBERED_MOST {
            self.remembered.clear();
        }
        self.remembered.insert(verified.tag.prefix(), verified);
    }
}
