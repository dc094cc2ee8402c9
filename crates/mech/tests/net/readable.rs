//! A descriptor that is no socket, read by a service of the worker's.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;

use drover_mech::net::{Conn, Executor, Net, NetOptions, Readable, Remote};

use crate::{PATIENCE, on_every_mechanism};

/// One that is written to before the worker waits, while it waits and while it works.
#[test]
fn everything_that_is_written_is_read_and_a_stop_ends_the_reader() {
    on_every_mechanism(|mechanism| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut seen = Seen::default();
        writer.write_all(&[0]).unwrap();
        let (send, read) = mpsc::channel();
        let (tell, remote) = mpsc::channel::<Remote>();
        let worker = thread::spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).unwrap();
            let fd = OwnedFd::from(reader.try_clone().unwrap());
            let readable = Readable::open(&net, fd).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            executor.watch(readable, |readable| async move {
                let mut reader = reader;
                while readable.ready().await.unwrap() {
                    let mut bytes = Vec::new();
                    let end = reader.read_to_end(&mut bytes).unwrap_err();
                    assert_eq!(end.kind(), ErrorKind::WouldBlock);
                    send.send(bytes).unwrap();
                }
            });
            executor.service(|conn| async move {
                while conn.net().phase().takes_connections() {
                    conn.sleep_until(conn.net().now() + PATIENCE).await;
                }
            });
            tell.send(net.remote()).unwrap();
            executor.run(|_: Conn<'_>| async {}).unwrap();
        });
        let remote = remote.recv().unwrap();
        for byte in 1..100 {
            if byte % 10 == 0 {
                seen.until(&read, byte);
            }
            writer.write_all(&[byte]).unwrap();
        }
        seen.until(&read, 100);
        remote.stop().unwrap();
        worker.join().unwrap();
    });
}

#[derive(Default)]
struct Seen(Vec<u8>);

impl Seen {
    /// Waits for all the bytes below `end`.
    fn until(&mut self, read: &mpsc::Receiver<Vec<u8>>, end: u8) {
        while self.0.len() < usize::from(end) {
            self.0.extend(read.recv_timeout(PATIENCE).expect("an unread byte is reported"));
        }
        assert!(self.0.iter().copied().eq(0..end));
    }
}
