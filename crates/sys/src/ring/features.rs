//! The parts of io_uring that a kernel may lack, and the errors that name them.

use std::io;

use bitflags::bitflags;
use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;

bitflags! {
    /// Parts of io_uring that some mechanism or backend needs. Parts that only make
    /// io_uring faster are not listed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingParts: u16 {
        /// A full completion queue loses nothing (`IORING_FEAT_NODROP`).
        const NODROP = 1;
        /// io_uring_enter(2) takes a time-out (`IORING_FEAT_EXT_ARG`).
        const TIMEOUT = 2;
        /// Multishot poll has no flag; `IORING_FEAT_RSRC_TAGS` came with it.
        const POLL_MULTISHOT = 4;
        /// The requests for sockets; a kernel may be built without them.
        const SOCKETS = 8;
        /// Successful requests can be silent (`IORING_FEAT_CQE_SKIP`).
        const CQE_SKIP = 16;
        /// Provided buffer rings. Multishot accept came with them, and neither
        /// has a flag: they are tried.
        const BUFFER_RINGS = 32;
        /// Multishot receive has no flag: it is tried.
        const RECEIVE_MULTISHOT = 64;
        /// Reads of files without a vector of buffers.
        const READS = 128;
        /// Requests that connect a socket. A server's ring does without.
        const CONNECT = 256;
    }
}

/// Each part, its name in messages, and the Linux version that brought it.
const NAMES: &[(RingParts, &str, &str)] = &[
    (RingParts::NODROP, "completions that outlast a full queue", "5.5"),
    (RingParts::SOCKETS, "accept, send and receive", "5.6"),
    (RingParts::CONNECT, "connect", "5.6"),
    (RingParts::READS, "reads", "5.6"),
    (RingParts::TIMEOUT, "waits with a time-out", "5.11"),
    (RingParts::POLL_MULTISHOT, "multishot poll", "5.13"),
    (RingParts::CQE_SKIP, "requests without a completion", "5.17"),
    (RingParts::BUFFER_RINGS, "provided buffer rings and multishot accept", "5.19"),
    (RingParts::RECEIVE_MULTISHOT, "multishot receive", "6.0"),
];

/// Requests that [`RingParts::SOCKETS`] stands for.
const SOCKET_REQUESTS: &[u8] = &[
    opcode::Accept::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::Recv::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
];

/// Requests that every ring takes.
const ALWAYS_REQUESTS: &[u8] =
    &[opcode::Nop::CODE, opcode::PollAdd::CODE, opcode::AsyncCancel::CODE];

/// Requests that [`RingParts::READS`] stands for.
const READ_REQUESTS: &[u8] = &[opcode::Read::CODE, opcode::Fadvise::CODE];

/// `IORING_REGISTER_PBUF_RING`: lends a ring of provided buffers.
const REGISTER_BUFFER_RING: u8 = 22;

impl RingParts {
    /// The requests that a ring with these parts takes.
    pub(super) fn requests(self) -> Vec<u8> {
        let of = |part, requests: &'static [u8]| match self.contains(part) {
            true => requests.iter(),
            false => [].iter(),
        };
        let requests = ALWAYS_REQUESTS
            .iter()
            .chain(of(RingParts::SOCKETS, SOCKET_REQUESTS))
            .chain(of(RingParts::CONNECT, &[opcode::Connect::CODE]))
            .chain(of(RingParts::READS, READ_REQUESTS));
        requests.copied().collect()
    }

    /// What a ring with these parts takes: requests, their flags, and calls of io_uring_register(2).
    pub(super) fn restrictions(self) -> Vec<Restriction> {
        let flags = Flags::ASYNC | Flags::BUFFER_SELECT | Flags::SKIP_SUCCESS;
        let others = [
            Restriction::sqe_flags_allowed(flags.bits()),
            Restriction::register_op(REGISTER_BUFFER_RING),
        ];
        self.requests().into_iter().map(Restriction::sqe_op).chain(others).collect()
    }

    /// Fails unless `ring` has all parts in `needed`. Parts without a flag cannot be
    /// checked here.
    ///
    /// # Errors
    /// Errors of [`RingParts::require`] and of io_uring_register(2).
    pub fn check(ring: &IoUring, needed: RingParts) -> io::Result<()> {
        let params = ring.params();
        let mut offered = RingParts::all();
        offered.set(RingParts::NODROP, params.is_feature_nodrop());
        offered.set(RingParts::TIMEOUT, params.is_feature_ext_arg());
        offered.set(RingParts::POLL_MULTISHOT, params.is_feature_resource_tagging());
        offered.set(RingParts::CQE_SKIP, params.is_feature_skip_cqe_on_success());
        if needed.intersects(RingParts::SOCKETS | RingParts::CONNECT | RingParts::READS) {
            let mut probe = Probe::new();
            match ring.submitter().register_probe(&mut probe) {
                // Linux before 5.6 cannot be asked which requests it has.
                Err(error) if !is(&error, Errno::INVAL) => {
                    return Err(explain("io_uring_register", error));
                }
                _ => {}
            }
            let supported = SOCKET_REQUESTS.iter().all(|code| probe.is_supported(*code));
            offered.set(RingParts::SOCKETS, supported);
            offered.set(RingParts::CONNECT, probe.is_supported(opcode::Connect::CODE));
            offered.set(RingParts::READS, probe.is_supported(opcode::Read::CODE));
        }
        offered.require(needed)
    }

    /// Fails unless `self` has all parts in `needed`.
    ///
    /// # Errors
    /// `Unsupported`, with the missing part and the Linux version that has it.
    pub fn require(self, needed: RingParts) -> io::Result<()> {
        let missing: Vec<_> = NAMES
            .iter()
            .filter(|(part, ..)| (needed - self).contains(*part))
            .map(|(_, name, since)| format!("{name} (Linux {since})"))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let reason = format!("the kernel's io_uring lacks {}", missing.join(" and "));
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }
}

/// Whether `error` is the kernel's error `errno`.
pub fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// The sysctl that forbids io_uring to processes without privileges (1) or to all (2), since Linux 6.6.
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// `error` with a message that says who forbids `call` and what helps. The error
/// number alone does not tell.
pub fn explain(call: &str, error: io::Error) -> io::Error {
    let sysctl = std::fs::read_to_string(SYSCTL).ok();
    match cause(&error, sysctl.as_deref().map(str::trim)) {
        Some(cause) => io::Error::new(error.kind(), format!("{call}: {error}: {cause}")),
        None => error,
    }
}

/// Why the kernel refuses, as far as its error and the value of the sysctl tell.
fn cause(error: &io::Error, sysctl: Option<&str>) -> Option<&'static str> {
    let errno = Errno::from_io_error(error)?;
    Some(match (errno, sysctl) {
        (Errno::PERM, Some("2")) => "the sysctl kernel.io_uring_disabled is 2: nobody may use it",
        (Errno::PERM, Some("1")) => {
            "the sysctl kernel.io_uring_disabled is 1: only the group kernel.io_uring_group may"
        }
        (Errno::PERM | Errno::ACCESS, _) => {
            "a seccomp profile (as containers have) or another security module forbids it"
        }
        (Errno::NOSYS, Some(_)) => "the kernel has it, but a seccomp profile hides it",
        (Errno::NOSYS, None) => {
            "the kernel is older than 5.1 or built without it, or a seccomp profile hides it"
        }
        (Errno::NOMEM, _) => "its memory counts as locked: raise RLIMIT_MEMLOCK (ulimit -l)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_that_is_missing_is_named_with_its_kernel() {
        for part in RingParts::all() {
            let (_, name, since) = NAMES.iter().find(|(known, ..)| *known == part).unwrap();
            let error = (RingParts::all() - part).require(RingParts::all()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            let expected = format!("the kernel's io_uring lacks {name} (Linux {since})");
            assert_eq!(error.to_string(), expected);
            (RingParts::all() - part).require(RingParts::all() - part).unwrap();
        }
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let error = (RingParts::all() - RingParts::BUFFER_RINGS - RingParts::RECEIVE_MULTISHOT)
            .require(RingParts::all())
            .unwrap_err();
        let expected = "lacks provided buffer rings and multishot accept (Linux 5.19) \
                        and multishot receive (Linux 6.0)";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn a_refusal_is_put_down_to_its_cause() {
        for (errno, sysctl, word) in [
            (Errno::PERM, Some("2"), "io_uring_disabled is 2"),
            (Errno::PERM, Some("1"), "io_uring_group"),
            (Errno::PERM, Some("0"), "seccomp"),
            (Errno::PERM, None, "seccomp"),
            (Errno::ACCESS, Some("2"), "security module"),
            (Errno::NOSYS, Some("0"), "hides it"),
            (Errno::NOSYS, None, "older than 5.1"),
            (Errno::NOMEM, Some("0"), "RLIMIT_MEMLOCK"),
        ] {
            let told = cause(&errno.into(), sysctl).unwrap();
            assert!(told.contains(word), "{errno:?} {sysctl:?}: {told}");
        }
        assert_eq!(cause(&Errno::MFILE.into(), None), None);
    }
}
