//! What one worker knows of who is who.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_http1::{Refusal, Request, Status};
use drover_mech::net::Net;

use crate::auth::credentials::{Credentials, CredentialsTag};
use crate::auth::password_file::Auth;
use crate::auth::remembered::RememberedUsers;
use crate::auth::verifiers::{AskOutcome, PasswordVerdict, REMEMBERED_MOST, VerifiedTags};
use crate::lookup::pending::{PendingAnswer, PendingKind, RequestKey};
use crate::proxies::client::ClientAddress;
use crate::proxies::forwarded::ForwardedClients;

/// For how long a worker takes users that the pool remembers without asking it again. Far less than the pool remembers
/// them: it learns from that who is used.
const CONFIRMED_FOR: Duration = Duration::from_secs(10);

/// Nobody, or the wrong password.
const UNAUTHORIZED: Refusal = Refusal { status: Status::Unauthorized, reason: "" };

const TOO_MANY: Refusal =
    Refusal { status: Status::ServiceUnavailable, reason: "too many passwords are being verified" };

/// Tells a worker which requests are those of users.
pub(crate) struct Authenticator {
    auth: Arc<Auth>,
    /// Where results come in; `None`: nothing takes them yet.
    results: Option<Arc<VerifiedTags>>,
    /// Whom proxies name as clients in requests, if anybody may.
    forwarded: Option<ForwardedClients>,
    /// Users that the pool was asked for not long ago: their requests take no lock.
    confirmed: RememberedUsers<Rc<[u8]>>,
    /// What the pool has been given and not answered yet: as many at most as its queue and its threads hold.
    pending: Vec<(CredentialsTag, Rc<PendingAnswer>, Rc<[u8]>)>,
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
    /// For the users of `auth`; `forwarded`: whom proxies name as clients in requests, if anybody may.
    pub(crate) fn new(auth: Arc<Auth>, forwarded: Option<ForwardedClients>) -> Authenticator {
        let confirmed = RememberedUsers::new(REMEMBERED_MOST, CONFIRMED_FOR);
        Authenticator { auth, results: None, forwarded, confirmed, pending: Vec::new() }
    }

    /// From now on, results come in `results`; [`Authenticator::complete`] has to be called then.
    pub(crate) fn verify_by(&mut self, results: Arc<VerifiedTags>) {
        self.results = Some(results);
    }

    /// Whose request it is, which `key` is of `client`. Where its credentials have just been found wrong, the caller knows
    /// ([`PendingAnswer::refusal_of`]).
    pub(crate) fn check(
        &mut self,
        request: &Request<'_>,
        (key, client): (RequestKey, ClientAddress),
        now: Instant,
    ) -> AuthOutcome {
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
        let Some(results) = &self.results else { return AuthOutcome::Refused(TOO_MANY) };
        let named = self.forwarded.as_ref().and_then(|it| it.client(client, request.fields()));
        let client = named.map_or(client, ClientAddress::Ip);
        let name = credentials.name().into();
        match self.auth.pool().ask(client.into(), (credentials, tag), results, now) {
            AskOutcome::Right(user) => {
                self.confirmed.remember(tag, Rc::clone(&user), now);
                AuthOutcome::Granted(user)
            }
            AskOutcome::TooMany => AuthOutcome::Refused(TOO_MANY),
            AskOutcome::Pending => {
                let answer = PendingAnswer::new(tag.bytes(), PendingKind::Credentials, key);
                self.pending.push((tag, Rc::clone(&answer), name));
                AuthOutcome::Pending(answer)
            }
        }
    }

    /// The user whose request it is, if its credentials are remembered as right.
    pub(crate) fn recognize(&mut self, request: &Request<'_>, now: Instant) -> Option<Rc<[u8]>> {
        let (_, tag) = self.credentials(request)?;
        self.user_of(&tag, now)
    }

    /// The credentials of a request, if it has some.
    fn credentials(&self, request: &Request<'_>) -> Option<(Credentials, CredentialsTag)> {
        let credentials = request.field("Authorization").and_then(Credentials::of)?;
        let tag = credentials.tag(self.auth.pool().key());
        Some((credentials, tag))
    }

    fn user_of(&mut self, tag: &CredentialsTag, now: Instant) -> Option<Rc<[u8]>> {
        if let Some(user) = self.confirmed.find(tag, now) {
            return Some(Rc::clone(user));
        }
        let user = self.auth.pool().recall(tag, now)?;
        self.confirmed.remember(*tag, Rc::clone(&user), now);
        Some(user)
    }

    /// Takes the results of the pool, and resumes the connections that wait for them.
    pub(crate) fn complete(&mut self, net: &Net) {
        let results = self.results.as_ref().map(|results| results.take());
        for (tag, verdict) in results.unwrap_or_default() {
            let Some(place) = self.pending.iter().position(|(other, ..)| other.is(&tag)) else {
                continue;
            };
            let (tag, answer, name) = self.pending.swap_remove(place);
            let refusal = match verdict {
                PasswordVerdict::Right => {
                    self.confirmed.remember(tag, name, net.now());
                    None
                }
                PasswordVerdict::Wrong => Some(UNAUTHORIZED),
                PasswordVerdict::Unverified => Some(TOO_MANY),
            };
            answer.finish_without_file(refusal, net);
        }
    }
}
