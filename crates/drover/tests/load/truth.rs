//! What a run against a scripted server must report, computed from that server's log: the faults of
//! the script, and the account of each.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::run::Run;
use crate::server::{Action, Request, Server, response};

/// The length of a whole body; what `--expect-size` is told.
pub(crate) const BODY: usize = 100;

/// What a server can do wrong, and what it can do right in an unusual way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A whole response.
    None,
    /// A whole one that says that the service is unavailable.
    Unavailable,
    /// A whole one, `Connection: close`, and the close.
    Close,
    /// A whole one in four pieces, one of them within the head.
    Dripped,
    /// A whole one with one wrong byte in its body.
    WrongByte,
    /// A body that is shorter than expected, and a head that says so.
    Short,
    /// A close in the middle of the head.
    CutHead,
    /// A close in the middle of the body.
    CutBody,
    /// A reset in place of the response.
    Reset,
    /// A reset in the middle of the body.
    ResetBody,
    /// What is not HTTP.
    Noise,
    /// No answer at all.
    Silence,
}

pub(crate) const FAULTS: [Fault; 12] = [
    Fault::None,
    Fault::Unavailable,
    Fault::Close,
    Fault::Dripped,
    Fault::WrongByte,
    Fault::Short,
    Fault::CutHead,
    Fault::CutBody,
    Fault::Reset,
    Fault::ResetBody,
    Fault::Noise,
    Fault::Silence,
];

/// Bytes of a body that is cut.
const CUT: usize = 40;

/// What becomes of a request: a response with a status, or an error of a class.
#[derive(Clone, Copy, Debug)]
enum End {
    Status(&'static str),
    Error(&'static str),
}

impl Fault {
    /// What the server does.
    pub(crate) fn action(self) -> Action {
        let whole = response("200 OK", BODY);
        let head = whole.len() - BODY;
        match self {
            Fault::None => Action::Response(whole),
            Fault::Unavailable => Action::Response(response("503 Service Unavailable", BODY)),
            Fault::Close => Action::ResponseAndClose(closing()),
            Fault::Dripped => {
                let cuts = [0, head / 2, head + 1, head + CUT, whole.len()];
                let pieces = cuts.windows(2).map(|cut| whole[cut[0]..cut[1]].to_string());
                Action::Drip(Duration::from_millis(1), pieces.collect())
            }
            Fault::WrongByte => {
                let (right, wrong) = whole.split_at(head + CUT);
                Action::Response(format!("{right}y{}", &wrong[1..]))
            }
            Fault::Short => Action::Response(response("200 OK", CUT)),
            Fault::CutHead => Action::ResponseAndClose(whole[..head / 2].to_string()),
            Fault::CutBody => Action::ResponseAndClose(whole[..head + CUT].to_string()),
            Fault::Reset => Action::Reset,
            Fault::ResetBody => Action::ResponseAndReset(whole[..head + CUT].to_string()),
            Fault::Noise => Action::Response("SSH-2.0-OpenSSH\r\n".to_string()),
            Fault::Silence => Action::Ignore,
        }
    }

    /// What the generator must call it.
    fn end(self) -> End {
        match self {
            Fault::None | Fault::Close | Fault::Dripped => End::Status("200"),
            Fault::Unavailable => End::Status("503"),
            Fault::WrongByte => End::Error("bad_body"),
            Fault::Short => End::Error("bad_length"),
            Fault::CutHead | Fault::CutBody => End::Error("truncated"),
            Fault::Reset | Fault::ResetBody => End::Error("reset"),
            Fault::Noise => End::Error("protocol"),
            Fault::Silence => End::Error("client_timeout"),
        }
    }

    /// The bytes of the head, if it comes whole, and of the body.
    fn bytes(self) -> (u64, u64) {
        let whole = (response("200 OK", BODY).len() - BODY) as u64;
        match self {
            Fault::None | Fault::Dripped | Fault::WrongByte => (whole, BODY as u64),
            Fault::Unavailable => (whole + "Service Unavailable".len() as u64 - 2, BODY as u64),
            Fault::Close => ((closing().len() - BODY) as u64, BODY as u64),
            // Its length has one digit less.
            Fault::Short => (whole - 1, CUT as u64),
            Fault::CutBody | Fault::ResetBody => (whole, CUT as u64),
            Fault::CutHead | Fault::Reset | Fault::Noise | Fault::Silence => (0, 0),
        }
    }
}

fn closing() -> String {
    response("200 OK", BODY).replacen("\r\n", "\r\nConnection: close\r\n", 1)
}

/// Which fault request `number` meets: one of `faults`, drawn with a seed.
pub(crate) fn drawn(faults: &[Fault], seed: u64, number: u64) -> Fault {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(1 << 32) ^ number);
    faults[random.random_range(0..faults.len())]
}

/// Everything in the result that the log of the server knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    requests: u64,
    status: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    sent: u64,
    head: u64,
    body: u64,
    connections: u64,
    reused: u64,
    closed_by_peer: u64,
}

impl Account {
    /// What happened; `fault` says what request `number` met.
    pub(crate) fn of_log(
        log: &[Request],
        connections: u64,
        fault: impl Fn(u64) -> Fault,
    ) -> Account {
        let mut account = Account { connections, ..Account::default() };
        let mut calls: HashMap<u64, u64> = HashMap::new();
        for request in log {
            let fault = fault(request.number);
            let (head, body) = fault.bytes();
            account.requests += 1;
            account.sent += request.bytes;
            account.head += head;
            account.body += body;
            account.closed_by_peer += u64::from(fault == Fault::Close);
            match fault.end() {
                End::Status(status) => *account.status.entry(status.to_string()).or_default() += 1,
                End::Error(class) => *account.errors.entry(class.to_string()).or_default() += 1,
            }
            *calls.entry(request.connection).or_default() += 1;
        }
        account.reused = calls.values().map(|calls| calls - 1).sum();
        account
    }

    /// Checks that this account, of a run that was interrupted, has everything but the answers of
    /// the requests that were `in_flight`.
    #[track_caller]
    pub(crate) fn is_part_of(&self, happened: &Account, in_flight: u64) {
        let same = |a: &Account| (a.requests, a.sent, a.connections, a.reused);
        assert_eq!(same(self), same(happened));
        let missing = |of: fn(&Account) -> &BTreeMap<String, u64>| -> u64 {
            let said = |name| of(self).get(name).copied().unwrap_or(0);
            let missing = of(happened).iter().map(|(name, count)| count.checked_sub(said(name)));
            missing.map(|count| count.unwrap_or_else(|| panic!("{self:?} {happened:?}"))).sum()
        };
        assert_eq!(missing(|a| &a.status) + missing(|a| &a.errors), in_flight);
        assert!(self.head <= happened.head && self.body <= happened.body);
        assert!(self.closed_by_peer <= happened.closed_by_peer);
    }

    /// What the generator says.
    #[track_caller]
    pub(crate) fn of_run(run: &Run) -> Account {
        let counts = |path: &str| -> BTreeMap<String, u64> {
            let counts = run.json[path].as_object().unwrap().iter();
            let counts = counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0)));
            counts.filter(|(_, count)| *count > 0).collect()
        };
        Account {
            requests: run.number("/requests"),
            status: counts("status"),
            errors: counts("errors"),
            sent: run.number("/bytes/sent"),
            head: run.number("/bytes/head"),
            body: run.number("/bytes/body"),
            connections: run.number("/connections/attempted") - run.number("/connections/failed"),
            reused: run.number("/connections/reused"),
            closed_by_peer: run.number("/connections/closed_by_peer"),
        }
    }
}

/// A server whose requests meet `faults`, as the seed draws them.
pub(crate) fn faulty(faults: &[Fault], seed: u64) -> Server {
    let faults = faults.to_vec();
    Server::start(move |number| drawn(&faults, seed, number).action())
}
