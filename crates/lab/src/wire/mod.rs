//! The wire between load and subject: the loopback interface, or two network namespaces with a pair of
//! virtual interfaces and a token bucket at each end.
//!
//! The loopback interface has no rate: what a document measured at 100 Mbit/s, with a full wire, shows on loopback
//! only as CPU time. The namespaces have no names. They exist as long as this process, or a child in them; the pair
//! of interfaces is removed with them, also after SIGKILL.

mod netlink;

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::thread;

use nix::sched::CloneFlags;
use rustix::thread::LinkNameSpaceType;

use crate::failure::Failure;
use netlink::Netlink;

/// The index of the loopback interface. The kernel uses it in every namespace.
const LOOPBACK: u32 = 1;

/// The index of the pair's interface in its namespace. It is higher than the indices that the kernel gives itself.
const LINK: u32 = 64;

/// How long a packet may wait in a token bucket's queue, in seconds. Packets that would wait longer are dropped.
const QUEUE_S: f64 = 0.05;

/// How much time a token bucket saves up at most, in seconds.
const BURST_S: f64 = 0.002;

/// The smallest burst, in bytes: a segment of 64 KiB, which the kernel has not cut into packets yet, has to pass at
/// once.
const BURST_BYTES: u32 = 66_000;

/// An end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEnd {
    /// Where the subject runs.
    Subject,
    /// Where the load runs.
    Load,
}

/// A wire that can be used. Dropping the value removes the wire, once no process is left in it.
#[derive(Debug)]
pub enum Wire {
    /// The loopback interface of the lab's own namespace.
    Loopback,
    /// Two namespaces and what connects them.
    Limited(Limited),
}

/// Two namespaces and what connects them.
#[derive(Debug)]
pub struct Limited {
    subject: File,
    load: File,
    bits_per_second: u64,
}

impl Wire {
    /// Every address that a subject may listen on.
    pub const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(SUBJECT)];

    /// A wire with a rate, in bits per second and direction.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] with what is missing: the right to make namespaces, virtual interfaces or token
    /// buckets.
    pub fn limited(bits_per_second: u64) -> Result<Wire, Failure> {
        let made = thread::scope(|scope| {
            // A thread of its own, because it changes its namespace.
            let maker = scope.spawn(|| make(bits_per_second));
            maker.join().unwrap_or_else(|_| Err("the thread panicked".to_string()))
        });
        let (subject, load) = made.map_err(|why| {
            Failure::not_testable(format!(
                "a wire of {bits_per_second} bit/s cannot be made: {why}"
            ))
        })?;
        Ok(Wire::Limited(Limited { subject, load, bits_per_second }))
    }

    /// The address that the subject listens on.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Wire::Loopback => Ipv4Addr::LOCALHOST.into(),
            Wire::Limited(_) => SUBJECT.into(),
        }
    }

    /// Moves the calling thread, and the processes and threads that it starts from now on, to an end of the wire,
    /// until the result is dropped.
    ///
    /// # Errors
    /// [`Failure::Failed`] with what setns(2) says.
    pub fn enter(&self, end: WireEnd) -> Result<Entered, Failure> {
        let Wire::Limited(limited) = self else { return Ok(Entered { home: None }) };
        let failed = |error: io::Error| Failure::failed(format!("cannot enter the wire: {error}"));
        let home = current_namespace().map_err(failed)?;
        let there = match end {
            WireEnd::Subject => &limited.subject,
            WireEnd::Load => &limited.load,
        };
        move_to(there).map_err(failed)?;
        Ok(Entered { home: Some(home) })
    }

    /// The wire in a few words, for records.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Wire::Loopback => "loopback".to_string(),
            Wire::Limited(limited) => format!(
                "two network namespaces, a veth pair and a token bucket of {} bit/s at each end",
                limited.bits_per_second
            ),
        }
    }
}

/// Keeps a thread at an end of a wire. Dropping the value, on the same thread, moves the thread back.
#[derive(Debug)]
pub struct Entered {
    home: Option<File>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // The thread's original namespace exists as long as this file is open.
            let _ = move_to(home);
        }
    }
}

const SUBJECT: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);
const LOAD: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 2);

/// Makes both namespaces and what connects them. The calling thread ends in one of them.
fn make(bits_per_second: u64) -> Result<(File, File), String> {
    let somaxconn = fs::read_to_string(SOMAXCONN).ok();
    let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let fresh = || -> io::Result<File> {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
        current_namespace()
    };
    let subject = fresh().map_err(step("a network namespace"))?;
    let load = fresh().map_err(step("a network namespace"))?;
    let rate = (bits_per_second / 8).max(1);
    let burst = ((rate as f64 * BURST_S) as u32).max(BURST_BYTES);
    let limit = burst.saturating_add((rate as f64 * QUEUE_S) as u32);
    let netlink = Netlink::open().map_err(step("rtnetlink"))?;
    netlink
        .add_pair(("lab-load", LINK), ("lab-subject", LINK), subject.as_fd())
        .map_err(step("a pair of virtual interfaces (veth)"))?;
    for (namespace, address) in [(&load, LOAD), (&subject, SUBJECT)] {
        move_to(namespace).map_err(step("a network namespace"))?;
        let netlink = Netlink::open().map_err(step("rtnetlink"))?;
        netlink.up(LOOPBACK).map_err(step("the loopback interface"))?;
        netlink.add_address(LINK, address, 30).map_err(step("an address"))?;
        netlink
            .add_token_bucket(LINK, rate, burst, limit)
            .map_err(step("a token bucket (the kernel's sch_tbf)"))?;
        netlink.up(LINK).map_err(step("an interface"))?;
        // A new namespace has the kernel's defaults. Without these two settings, runs on different wires may differ
        // in more than the wire. If a setting fails, the load reports the effect.
        let _ = fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535");
        if let Some(somaxconn) = &somaxconn {
            let _ = fs::write(SOMAXCONN, somaxconn);
        }
    }
    Ok((subject, load))
}

const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

fn current_namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

fn move_to(namespace: &File) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A wire, or nothing and a note that the test is skipped.
    fn wire(bits_per_second: u64) -> Option<Wire> {
        Wire::limited(bits_per_second).inspect_err(|why| drover_testing::skip!("{why}")).ok()
    }

    #[test]
    fn bytes_pass_from_end_to_end_and_nowhere_else() {
        let Some(wire) = wire(100_000_000) else { return };
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = {
            let _there = wire.enter(WireEnd::Subject).unwrap();
            TcpListener::bind((wire.address(), 0)).unwrap()
        };
        let address = server.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, from) = server.accept().unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            stream.write_all(&word).unwrap();
            from.ip()
        });
        let mut stream = {
            let _there = wire.enter(WireEnd::Load).unwrap();
            assert!(TcpStream::connect(outside.local_addr().unwrap()).is_err());
            TcpStream::connect(address).unwrap()
        };
        stream.write_all(b"ping").unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ping");
        assert_eq!(echo.join().unwrap(), IpAddr::from(LOAD));
        // The thread is back in its original namespace.
        TcpStream::connect(outside.local_addr().unwrap()).unwrap();
    }

    #[test]
    fn the_token_bucket_counts_what_passes() {
        let Some(wire) = wire(1_000_000_000) else { return };
        let _there = wire.enter(WireEnd::Subject).unwrap();
        let Ok(output) = std::process::Command::new("tc").args(["-s", "qdisc"]).output() else {
            return drover_testing::skip!("tc(8) is not installed");
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("qdisc tbf") && text.contains("rate 1Gbit"), "{text}");
    }
}
