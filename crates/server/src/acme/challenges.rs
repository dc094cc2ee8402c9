//! What workers show to certificate authorities, in memory that they share with their supervisor.
//!
//! The supervisor writes; workers read, from a descriptor that cannot be written through. A challenge is there for all workers at
//! once, also for those that start later, and nobody has to be told. Workers look only at requests and handshakes that are for
//! challenges.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use drover_acme::{Challenge, ChallengeProof};
use drover_tls::server::{ChallengeCertificate, ChallengeCertificates};

/// What the path of a challenge by HTTP-01 begins with (RFC 8555 section 8.3).
const WELL_KNOWN: &[u8] = b"/.well-known/acme-challenge/";

/// The beginning of the memory: a number that is odd while the rest is written, and the length of the rest.
const HEADER: usize = 16;

/// The longest content.
const MOST: usize = 256 << 10;

/// How often a reader tries that finds a writer at work.
const TRIES: u32 = 16;

/// The supervisor's side: the challenges, and what workers read.
#[derive(Debug)]
pub(crate) struct ChallengeBoard {
    memory: File,
    reader: ChallengeReader,
    /// How often the memory was written, twice.
    number: u64,
    shown: Vec<Challenge>,
}

/// A worker's side.
#[derive(Clone, Debug)]
pub struct ChallengeReader(Arc<File>);

impl ChallengeBoard {
    /// No challenges yet.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, or no `/proc`.
    pub(crate) fn new() -> io::Result<ChallengeBoard> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = File::from(rustix::fs::memfd_create("drover-challenges", flags)?);
        memory.set_len(HEADER as u64)?;
        let reader = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
        let reader = ChallengeReader(Arc::new(reader));
        Ok(ChallengeBoard { memory, reader, number: 0, shown: Vec::new() })
    }

    /// For workers.
    pub(crate) fn reader(&self) -> ChallengeReader {
        self.reader.clone()
    }

    /// Has workers show a challenge from now on.
    ///
    /// # Errors
    /// There are too many, or no memory.
    pub(crate) fn show(&mut self, challenge: &Challenge) -> io::Result<()> {
        self.shown.push(challenge.clone());
        self.write().inspect_err(|_| drop(self.shown.pop()))
    }

    /// A challenge is over.
    pub(crate) fn withdraw(&mut self, challenge: &Challenge) {
        self.shown.retain(|it| it != challenge);
        // Memory that is there already is written: it does not fail. If it does, the challenge is shown for longer.
        let _same = self.write();
    }

    /// All challenges are over.
    pub(crate) fn clear(&mut self) {
        self.shown.clear();
        let _same = self.write();
    }

    fn write(&mut self) -> io::Result<()> {
        let content = match self.shown.is_empty() {
            true => Vec::new(),
            false => serde_json::to_vec(&self.shown)?,
        };
        if content.len() > MOST {
            return Err(io::Error::other("too many challenges at a time"));
        }
        let header =
            |number: u64| [number.to_ne_bytes(), (content.len() as u64).to_ne_bytes()].concat();
        self.memory.write_all_at(&header(self.number + 1), 0)?;
        self.memory.write_all_at(&content, HEADER as u64)?;
        self.number += 2;
        self.memory.write_all_at(&header(self.number), 0)
    }
}

impl ChallengeReader {
    /// What a supervisor has passed on.
    pub(crate) fn of(file: OwnedFd) -> ChallengeReader {
        ChallengeReader(Arc::new(File::from(file)))
    }

    /// What is passed on to workers.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What is to be answered to a request for this path; `None`: it is for no challenge.
    pub(crate) fn of_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let asked = path.strip_prefix(WELL_KNOWN)?;
        self.read()?.into_iter().find_map(|challenge| match challenge.proof {
            ChallengeProof::Http { token, content } if token.as_bytes() == asked => {
                Some(content.into_bytes())
            }
            _ => None,
        })
    }

    /// The challenges; `None`: there are none, or the supervisor has died while it wrote.
    fn read(&self) -> Option<Vec<Challenge>> {
        let header = || -> Option<(u64, usize)> {
            let mut bytes = [0; HEADER];
            self.0.read_exact_at(&mut bytes, 0).ok()?;
            let (number, length) = bytes.split_first_chunk::<8>()?;
            let length = u64::from_ne_bytes(length.try_into().ok()?);
            Some((u64::from_ne_bytes(*number), usize::try_from(length).ok()?))
        };
        for _ in 0..TRIES {
            let (number, length) = header()?;
            let is_whole = number % 2 == 0;
            if is_whole && length == 0 {
                return None;
            }
            if is_whole && length <= MOST {
                let mut content = vec![0; length];
                let read = self.0.read_exact_at(&mut content, HEADER as u64);
                if read.is_ok() && header()? == (number, length) {
                    return serde_json::from_slice(&content).ok();
                }
            }
            std::thread::yield_now();
        }
        None
    }
}

impl ChallengeCertificates for ChallengeReader {
    fn find(&self, name: &str) -> Option<ChallengeCertificate> {
        self.read()?.into_iter().find_map(|challenge| match challenge.proof {
            ChallengeProof::TlsAlpn { certificate, key } if challenge.name == name => {
                Some(ChallengeCertificate { certificate, key })
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_http(token: &str) -> Challenge {
        let content = format!("{token}.thumbprint");
        let proof = ChallengeProof::Http { token: token.to_owned(), content };
        Challenge { name: "a.example".to_owned(), proof }
    }

    fn by_tls(name: &str) -> Challenge {
        let proof = ChallengeProof::TlsAlpn { certificate: vec![1], key: vec![2] };
        Challenge { name: name.to_owned(), proof }
    }

    #[test]
    fn workers_see_what_is_shown_and_nothing_else() {
        let mut board = ChallengeBoard::new().unwrap();
        let reader = board.reader();
        let path = |token: &str| [WELL_KNOWN, token.as_bytes()].concat();
        assert_eq!(reader.of_path(&path("a")), None);
        board.show(&by_http("a")).unwrap();
        board.show(&by_tls("b.example")).unwrap();
        assert_eq!(reader.of_path(&path("a")).unwrap(), b"a.thumbprint");
        for other in ["", "b", "a/", "aa", "a?b"] {
            assert_eq!(reader.of_path(&path(other)), None, "{other}");
        }
        assert_eq!(reader.of_path(b"/a"), None);
        assert_eq!(reader.find("b.example").unwrap().certificate, [1]);
        assert!(reader.find("a.example").is_none());
        board.withdraw(&by_http("a"));
        assert_eq!(reader.of_path(&path("a")), None);
        assert!(reader.find("b.example").is_some());
        board.withdraw(&by_tls("b.example"));
        assert!(reader.find("b.example").is_none());
    }

    #[test]
    fn a_worker_cannot_write() {
        let board = ChallengeBoard::new().unwrap();
        let descriptor = board.reader().file().try_clone_to_owned().unwrap();
        assert!(File::from(descriptor).write_all_at(b"a", 0).is_err());
    }

    #[test]
    fn there_is_a_limit() {
        let mut board = ChallengeBoard::new().unwrap();
        let mut long = by_http("a");
        long.name = "a".repeat(MOST);
        assert!(board.show(&long).is_err());
        board.show(&by_http("b")).unwrap();
        assert!(board.reader().of_path(&[WELL_KNOWN, b"b"].concat()).is_some());
    }

    /// A reader gets one of the contents that were written, and never parts of two.
    #[test]
    fn a_reader_next_to_a_writer_sees_whole_contents() {
        let mut board = ChallengeBoard::new().unwrap();
        let reader = board.reader();
        let writer = std::thread::spawn(move || {
            for number in 0..2000 {
                let challenge = by_tls(&"x".repeat(1 + number % 7 * 900));
                board.show(&challenge).unwrap();
                board.withdraw(&challenge);
            }
        });
        while !writer.is_finished() {
            for challenge in reader.read().unwrap_or_default() {
                assert!(
                    challenge.name.len() % 900 == 1 && challenge.name.bytes().all(|it| it == b'x')
                );
            }
        }
        writer.join().unwrap();
    }
}
