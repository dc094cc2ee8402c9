//! A layer between the wire and a connection opens what comes and seals what goes, whoever is slow and however records are cut.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;

use drover_mech::fileio;
use drover_mech::files::served::ServedFile;
use drover_mech::net::{AcceptBatch, Body, Conn, Layer, NetOptions, OpenedBytes};

use crate::files::is_usable;
use crate::{PATIENCE, Worker, echo, on_every_mechanism};

/// Records of a kind, a length of two bytes, and as many bytes, each of which the layer turns over.
#[derive(Default)]
struct TurnedBytes {
    is_open: bool,
}

const HELLO: u8 = b'h';
const DATA: u8 = b'd';
const END: u8 = b'e';
const ALERT: u8 = b'!';

/// The most bytes of a record.
const MOST: usize = 1000;

fn record(kind: u8, plain: &[u8]) -> Vec<u8> {
    let [high, low] = (plain.len() as u16).to_be_bytes();
    let mut record = vec![kind, high, low];
    record.extend(plain.iter().map(|byte| !byte));
    record
}

fn records(plain: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    plain.chunks(MOST).for_each(|part| records.extend(record(DATA, part)));
    records
}

impl Layer for TurnedBytes {
    fn open(&mut self, wire: &mut [u8], answer: &mut Vec<u8>) -> io::Result<OpenedBytes> {
        let mut opened = OpenedBytes::default();
        while let [kind, high, low, ..] = wire[opened.used..] {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let start = opened.used + 3;
            if kind == DATA && len > MOST || ![HELLO, DATA, END].contains(&kind) {
                answer.push(ALERT);
                return Err(io::ErrorKind::InvalidData.into());
            }
            if wire.len() < start + len {
                break;
            }
            opened.used = start + len;
            match kind {
                HELLO => {
                    self.is_open = true;
                    answer.extend(record(HELLO, b"hello yourself"));
                }
                END => opened.is_end = true,
                _ => {
                    wire[start..start + len].iter_mut().for_each(|byte| *byte = !*byte);
                    wire.copy_within(start..start + len, opened.plain);
                    opened.plain += len;
                }
            }
        }
        Ok(opened)
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        wire.extend(records(plain));
        Ok(())
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        wire.extend(record(END, b""));
    }
}

/// Serves connections with the layer, once it is open.
fn start<S>(options: NetOptions, serve: S) -> Worker
where
    S: AsyncFn(Conn<'_>) + Send + 'static,
{
    Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
        conn.set_layer(Box::<TurnedBytes>::default());
        if conn.open_layer().await.is_ok() {
            serve(conn).await;
        } else {
            // What the layer answers is sent before.
            assert!(conn.has_layer());
        }
    })
}

/// A client of the layer.
struct Client(TcpStream);

impl Client {
    fn new(worker: &Worker) -> Client {
        let mut client = Client(worker.connect());
        client.0.set_nodelay(true).unwrap();
        client.0.set_write_timeout(Some(PATIENCE)).unwrap();
        client.0.write_all(&record(HELLO, b"hello")).unwrap();
        assert_eq!(client.read(), (HELLO, b"hello yourself".to_vec()));
        client
    }

    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 3];
        self.0.read_exact(&mut head).unwrap();
        let mut bytes = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        self.0.read_exact(&mut bytes).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        (head[0], bytes)
    }

    fn read_plain(&mut self, len: usize) -> Vec<u8> {
        let mut plain = Vec::new();
        while plain.len() < len {
            let (kind, bytes) = self.read();
            assert_eq!(kind, DATA);
            plain.extend(bytes);
        }
        plain
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn records_that_come_in_single_bytes_are_echoed() {
    let message = pattern(300);
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), echo);
        let mut client = Client::new(&worker);
        for part in message.chunks(100) {
            for byte in record(DATA, part) {
                client.0.write_all(&[byte]).unwrap();
            }
            assert_eq!(client.read_plain(part.len()), part);
        }
    });
}

#[test]
fn records_behind_the_hello_are_not_lost() {
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), echo);
        let mut client = Client(worker.connect());
        let all = [record(HELLO, b"hello"), record(DATA, b"first"), record(DATA, b"sec")].concat();
        client.0.write_all(&all).unwrap();
        assert_eq!(client.read().0, HELLO);
        assert_eq!(client.read_plain(8), b"firstsec");
    });
}

#[test]
fn a_long_message_comes_back_though_nobody_reads_for_long() {
    let message = pattern(8 << 20);
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), echo);
        let mut client = Client::new(&worker);
        let mut sender = client.0.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&records(&message)).unwrap());
            assert!(client.read_plain(message.len()) == message);
        });
    });
}

#[test]
fn head_and_body_arrive_sealed_whichever_the_body_is() {
    let expected = Arc::new(pattern(3 << 20));
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(&expected).unwrap();
    file.as_file().sync_all().unwrap();
    on_every_mechanism(|mechanism| {
        let backends = [fileio::auto()].into_iter().chain(fileio::ALL.iter().copied());
        for backend in backends.filter(|backend| is_usable(backend)) {
            let options = NetOptions { files: backend, ..NetOptions::new(mechanism) };
            let (path, shared) = (file.path().to_owned(), Arc::clone(&expected));
            let worker = start(options, async move |conn: Conn<'_>| {
                let file = Rc::new(ServedFile::from(std::fs::File::open(&path).unwrap()));
                while let Ok(1..) = conn.fill_idle().await {
                    let body = match conn.io(|io| (io.input.len(), io.input[0])) {
                        b'f' => {
                            Body::File { file: Rc::clone(&file), offset: 5, len: (3 << 20) - 5 }
                        }
                        _ => Body::Shared(Rc::from(&shared[..])),
                    };
                    conn.io(|io| (0, io.output.extend_from_slice(b"head")));
                    if conn.send(body, None).await.is_err() {
                        return;
                    }
                }
            });
            let mut client = Client::new(&worker);
            for (asked, body) in [(b"m", &expected[..]), (b"f", &expected[5..])] {
                client.0.write_all(&record(DATA, asked)).unwrap();
                let came = client.read_plain(4 + body.len());
                assert!(came.starts_with(b"head") && came[4..] == *body, "{}", backend.name);
            }
        }
    });
}

#[test]
fn both_sides_say_that_nothing_more_comes() {
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), async |conn: Conn<'_>| {
            assert!(matches!(conn.fill().await, Ok(4)));
            assert!(matches!(conn.fill().await, Ok(0)));
            conn.io(|io| (4, io.output.extend_from_slice(b"bye")));
            conn.close_layer();
            conn.flush(None).await.unwrap();
        });
        let mut client = Client::new(&worker);
        client.0.write_all(&[record(DATA, b"last"), record(END, b"")].concat()).unwrap();
        let mut came = Vec::new();
        client.0.read_to_end(&mut came).unwrap();
        assert_eq!(came, [record(DATA, b"bye"), record(END, b"")].concat());
    });
}

#[test]
fn who_breaks_the_protocol_gets_an_alert_and_no_more() {
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), echo);
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"d\xff\xff"] {
            let mut stream = worker.connect();
            stream.write_all(garbage).unwrap();
            let mut came = [0];
            stream.read_exact(&mut came).unwrap();
            assert_eq!(came[0], ALERT);
            assert!(matches!(stream.read(&mut came), Ok(0) | Err(_)));
        }
    });
}

#[test]
fn skipped_bytes_are_opened_and_dropped() {
    on_every_mechanism(|mechanism| {
        let worker = start(NetOptions::new(mechanism), async |conn: Conn<'_>| {
            let mut left = 5000;
            while left > 0 {
                left -= conn.skip(left).await.unwrap();
            }
            while conn.input_len() < 7 {
                conn.fill().await.unwrap();
            }
            conn.io(|io| (io.input.len(), io.output.extend_from_slice(io.input)));
            conn.send(Body::None, None).await.unwrap();
        });
        let mut client = Client::new(&worker);
        client.0.write_all(&records(&pattern(5003))).unwrap();
        client.0.write_all(&record(DATA, b"rest")).unwrap();
        let expected = [&pattern(5003)[5000..], b"rest"].concat();
        assert_eq!(client.read_plain(7), expected);
    });
}
