//! Lists of large directories that many clients want at the same time: each is made once, and memory stays within its share.

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use crate::harness::{
    Client, Response, Server, Site, drover, figure, many_connections, on_every_mechanism, once,
    request, wait_until,
};
use crate::http2::wire as http2;
use crate::tls::wire::is_spoken;

const JSON: &str = "Accept: application/json";
const MIB: u64 = 1 << 20;

/// How many names a large directory has: as many as a list shows.
const MANY: usize = 10_000;

/// How many names a directory with long names has. Its list has about a megabyte: a client that takes nothing leaves most of
/// that with the server.
const LONG: usize = 2_000;

/// A site with some directories of `names` names each, and a small file. The directories are old enough for a change to show.
fn site(directories: usize, names: usize, name: impl Fn(usize) -> String) -> Site {
    let site = Site::new();
    site.file("small", "small");
    for directory in 0..directories {
        std::fs::create_dir(site.path().join(directory.to_string())).unwrap();
        for number in 0..names {
            File::create(site.path().join(format!("{directory}/{}", name(number)))).unwrap();
        }
    }
    for directory in 0..directories {
        await_age(&site, &directory.to_string());
    }
    site
}

fn long_name(number: usize) -> String {
    format!("{number:0>200}")
}

/// Waits until a directory was changed so long ago that another change has another time.
fn await_age(site: &Site, directory: &str) {
    let metadata = std::fs::metadata(site.path().join(directory)).unwrap();
    let changed =
        UNIX_EPOCH + Duration::new(metadata.ctime().cast_unsigned(), metadata.ctime_nsec() as u32);
    wait_until("the directory is old enough", || {
        let age = SystemTime::now().duration_since(changed);
        age.is_ok_and(|age| age > Duration::from_millis(100))
    });
}

fn serve(site: &Site, flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(site.path()).arg("--listing").args(flags).stderr(Stdio::piped());
    Server::start(command, 1)
}

/// Stops the server, and says how often it has read a directory to list it.
#[track_caller]
fn listed(mut server: Server) -> u64 {
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    figure(&log, "directories listed").max(figure(&log, "directory listed"))
}

/// A client that takes what it is sent in small pieces: both kernels have room for a part of a large list only, and the server
/// keeps the rest.
fn slow_client(server: &Server) -> Client {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    setsockopt(&socket, sockopt::RcvBuf, &16_384).unwrap();
    // A segment of 64 KiB, as is usual here, would have to wait for a larger window.
    setsockopt(&socket, sockopt::TcpMaxSeg, &1000).unwrap();
    rustix::net::connect(&socket, &server.address()).unwrap();
    Client::of(TcpStream::from(socket))
}

#[track_caller]
fn is_whole(response: &Response, names: usize) {
    assert_eq!(rows(response), names);
    assert!(response.text().ends_with("</table>"));
}

/// How many names a list has, apart from the directory above.
fn rows(response: &Response) -> usize {
    response.text().matches("<tr><td><a href=\"./").count()
}

/// The names of a page, in its order.
fn names(page: &str) -> impl Iterator<Item = &str> {
    page.split("<a href=\"./").skip(1).map(|row| row.split_once('"').unwrap().0)
}

#[test]
fn clients_who_ask_at_once_share_one_list_on_every_mechanism() {
    const CLIENTS: usize = 400;
    let _alone = many_connections();
    let name = |number| format!("{number:0>5}");
    let site = site(1, MANY, name);
    on_every_mechanism(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        server.get("/small").is(200);
        let before = server.private_memory();
        let grown = || server.private_memory().saturating_sub(before);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| slow_client(&server)).collect();
        clients.iter_mut().for_each(|client| client.await_handshake().unwrap());
        // Half of them want JSON. Nobody takes more than the head.
        let fields = |number: usize| if number.is_multiple_of(2) { &[][..] } else { &[JSON][..] };
        server.while_stopped(|| {
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(request("GET", "/0/", fields(number)));
            }
        });
        let heads: Vec<Response> =
            clients.iter_mut().map(|it| it.response_head().is(200)).collect();
        // A copy for each would be 250 MB. Over TLS and HTTP/2 each holds one piece of 64 KiB, which is sealed or has frames, and what
        // belongs to the connection.
        let holds = is_spoken(server.address()) || http2::is_wanted();
        let each = if holds { 80 << 10 } else { 0 };
        assert!(
            grown() < 32 * MIB + each * CLIENTS as u64,
            "{}: {} bytes more",
            mechanism.name,
            grown()
        );
        // The clients who take nothing hold up nobody.
        assert_eq!(server.get("/small").is(200).text(), "small");
        is_whole(&server.get("/0/").is(200), MANY);
        // Half of them leave.
        clients.truncate(CLIENTS / 2);
        let read = |(client, head): (&mut Client, &Response)| client.read(head.length() as usize);
        let bodies: Vec<Vec<u8>> = clients.iter_mut().zip(&heads).map(read).collect();
        let page = str::from_utf8(&bodies[0]).unwrap();
        assert!(names(page).eq((0..MANY).map(name)) && page.ends_with("</table>"));
        let json: serde_json::Value = serde_json::from_slice(&bodies[1]).unwrap();
        let entries = json["entries"].as_array().unwrap();
        assert!(entries.iter().map(|it| it["name"].as_str().unwrap()).eq((0..MANY).map(name)));
        for (number, body) in bodies.iter().enumerate() {
            assert!(*body == bodies[number % 2], "{}: client {number}", mechanism.name);
        }
        // The sessions of those who stay remain.
        let each = if holds { 16 << 10 } else { 0 };
        wait_until("the memory goes back", || grown() < 8 * MIB + each * CLIENTS as u64 / 2);
        // If the machine pauses, some come when a list is too old.
        let listed = listed(server);
        assert!(listed < CLIENTS as u64 / 4, "{}: {listed} times", mechanism.name);
    });
}

/// Files and lists are asked for by turns, all at once: files do not wait for the threads that make lists, and no list is
/// another directory's.
#[test]
fn files_are_answered_while_many_different_lists_are_made_on_every_mechanism() {
    const DIRECTORIES: usize = 40;
    let _alone = many_connections();
    let site = Site::new();
    site.file("small", "small");
    for directory in 0..DIRECTORIES {
        for number in 0..=directory {
            site.file(&format!("{directory}/{number}"), "");
        }
    }
    on_every_mechanism(|mechanism| {
        for more in [&[][..], &["--workers", "2"], &["--revalidate", "0s"]] {
            let server = serve(&site, &[&["--dispatch", mechanism.name], more].concat());
            let target = |number: usize| match number % 2 {
                0 => format!("/{}/", number / 2 % DIRECTORIES),
                _ => "/small".to_owned(),
            };
            let clients = server.clients_that_have_asked(4 * DIRECTORIES, target);
            for (number, mut client) in clients.into_iter().enumerate() {
                let response = client.response().is(200);
                match number % 2 {
                    0 => is_whole(&response, number / 2 % DIRECTORIES + 1),
                    _ => assert_eq!(response.text(), "small"),
                }
            }
        }
    });
}

/// One list fits into the share of 16 MiB at a time, and clients who take nothing keep theirs.
#[test]
fn different_lists_wait_for_memory_on_every_mechanism() {
    const DIRECTORIES: usize = 6;
    let _alone = many_connections();
    let site = site(DIRECTORIES, LONG, long_name);
    on_every_mechanism(|mechanism| {
        let flags = ["--memory", "16M", "--cache", "off", "--dispatch", mechanism.name];
        let server = serve(&site, &flags);
        server.get("/small").is(200);
        let before = server.private_memory();
        let ask = |directory| {
            let mut client = slow_client(&server);
            client.send(request("GET", &format!("/{directory}/"), &[]));
            thread::spawn(move || client.response())
        };
        let readers: Vec<_> = (0..DIRECTORIES).map(ask).collect();
        assert_eq!(server.get("/small").is(200).text(), "small");
        for reader in readers {
            let response = reader.join().unwrap().is(200);
            is_whole(&response, LONG);
            assert!(response.length() > 512 << 10, "two have no room in the share");
            let grown = server.private_memory().saturating_sub(before);
            assert!(grown < 6 * MIB, "{}: {grown} bytes more", mechanism.name);
        }
        assert!(listed(server) >= DIRECTORIES as u64);
    });
}

#[test]
fn a_client_that_has_waited_too_long_for_memory_is_told_so_and_leaves_nothing() {
    let site = site(2, LONG, long_name);
    let flags = ["--memory", "16M", "--open-timeout", "1s", "--min-rate", "0"];
    on_every_mechanism(|mechanism| {
        let server = serve(&site, &[&flags[..], &["--dispatch", mechanism.name]].concat());
        // A machine that is busy may take longer than a client may wait.
        let holder = once("somebody has a list", || {
            let mut holder = slow_client(&server);
            holder.send(request("GET", "/0/", &[]));
            (holder.response_head().status == 200).then_some(holder)
        });
        server.get("/1/").is(503);
        assert_eq!(server.get("/small").is(200).text(), "small");
        drop(holder);
        wait_until("there is room again", || {
            let response = server.get("/1/");
            let is_list = response.status == 200;
            if is_list {
                is_whole(&response, LONG);
            }
            is_list
        });
    });
}

#[test]
fn head_has_the_fields_of_get_and_reads_no_directory_on_every_mechanism() {
    let site = Site::new();
    site.file("folder/a", "a");
    await_age(&site, "folder");
    let fields = |response: &Response| -> Vec<String> {
        let varies = |line: &str| line.starts_with("Content-Length") || line.starts_with("Date");
        response.lines.iter().filter(|line| !varies(line)).cloned().collect()
    };
    on_every_mechanism(|mechanism| {
        for openers in ["2", "0"] {
            let flags = ["--stat-threads", openers, "--dispatch", mechanism.name];
            let server = serve(&site, &flags);
            let mut client = server.connect();
            let mut heads = Vec::new();
            for accept in [&[][..], &[JSON]] {
                for target in ["/", "/folder/", "/folder/?query"] {
                    let head = client.head(target, accept).is(200);
                    assert_eq!(head.field("Content-Length"), None);
                    heads.push((target, accept, fields(&head)));
                }
            }
            client.head("/none/", &[]).is(404);
            client.head("/folder", &[]).is(301);
            // Nothing was read so far, and each of four lists is now.
            for (target, accept, head) in heads {
                let get = client.ask(target, accept).is(200);
                assert_eq!(fields(&get), head, "{target}");
                let length = client.head(target, accept).field("Content-Length").map(str::to_owned);
                assert!(length.is_none_or(|it| it == get.length().to_string()));
            }
            let listed = listed(server);
            assert!((4..=6).contains(&listed), "{}: {listed}", mechanism.name);
        }
    });
}

#[test]
fn a_list_that_was_shared_is_another_one_when_the_directory_has_changed() {
    let site = Site::new();
    site.file("folder/a", "a");
    for flags in [
        &[][..],
        &["--stat-threads", "0"],
        &["--revalidate", "1h"],
        &["--revalidate", "0s"],
        &["--processes"],
    ] {
        let server = serve(&site, flags);
        let mut client = server.connect();
        for number in 0..10 {
            await_age(&site, "folder");
            let before = client.get("/folder/").is(200);
            let again = client.get("/folder/").is(200);
            assert_eq!(before.text(), again.text());
            site.file(&format!("folder/{flags:?}{number}"), "");
            let after = client.get("/folder/").is(200);
            assert_eq!(rows(&after), rows(&before) + 1, "{flags:?}");
            // Another directory takes its place.
            let other = format!("{number}{flags:?}");
            site.file(&format!("{other}/only"), "");
            await_age(&site, &other);
            let (here, aside) = (site.path().join("folder"), site.path().join("aside"));
            std::fs::rename(&here, &aside).unwrap();
            std::fs::rename(site.path().join(other), &here).unwrap();
            assert_eq!(rows(&client.get("/folder/").is(200)), 1, "{flags:?}");
            std::fs::remove_dir_all(&here).unwrap();
            std::fs::rename(&aside, &here).unwrap();
        }
    }
}

#[test]
fn what_is_asked_of_a_file_in_parts_or_on_conditions_is_a_whole_list() {
    let site = Site::new();
    site.file("folder/a", "a");
    let server = serve(&site, &[]);
    let whole = server.get("/folder/").is(200);
    for field in
        ["Range: bytes=0-3", "If-None-Match: *", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]
    {
        let response = server.ask("/folder/", &[field]).is(200);
        assert_eq!(response.text(), whole.text(), "{field}");
    }
}
