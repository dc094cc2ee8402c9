//! 103 Early Hints: what a page needs, told while the page is opened.

use crate::harness::{Client, Response, Server, Site, drover, on_every_mechanism, request};
use crate::http2::wire as http2;

const LINKS: [&str; 2] = ["</style.css>; rel=preload; as=style", "</app.js>; rel=modulepreload"];
const NAVIGATES: &str = "Sec-Fetch-Mode: navigate";

/// The links of the next head, whose status must be this.
fn links(client: &mut Client, status: u16) -> Vec<String> {
    let response = client.response_head().is(status);
    let links = links_of(&response);
    if status == 103 {
        assert!(response.lines[0].starts_with("HTTP/1.1 103 "), "{}", response.lines[0]);
        assert_eq!(links.len(), response.lines.len() - 1, "{:?}", response.lines);
    }
    links
}

fn links_of(response: &Response) -> Vec<String> {
    let links = response.lines.iter().filter_map(|line| line.strip_prefix("Link: "));
    links.map(str::to_owned).collect()
}

fn rules() -> [String; 6] {
    let rule = |pattern: &str, link: &str| format!("{pattern} {link}");
    let flag = || "--early-hints".to_owned();
    [
        flag(),
        rule("/ostype", LINKS[0]),
        flag(),
        rule("/o*", LINKS[1]),
        flag(),
        rule("/*.html", LINKS[0]),
    ]
}

/// Of procfs no name is ever at hand.
fn never_at_hand(flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg("/proc/sys/kernel").args(rules()).args(flags);
    Server::start(command, 1)
}

#[test]
fn links_go_ahead_of_a_page_that_is_not_at_hand_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        let server = never_at_hand(&["--cache", "off", "--dispatch", mechanism.name]);
        let mut client = server.connect();
        for _ in 0..2 {
            for (target, expected) in
                [("/ostype", &LINKS[..]), ("/osrelease", &LINKS[1..]), ("/hostname", &[])]
            {
                client.send(request("GET", target, &[NAVIGATES]));
                if !expected.is_empty() {
                    assert_eq!(links(&mut client, 103), expected);
                }
                assert_eq!(links_of(&client.response().is(200)), expected);
            }
        }
        let several = ["/ostype", "/osrelease", "/o-none", "/ostype"];
        client.send(several.map(|target| request("GET", target, &[NAVIGATES])).concat());
        for (status, count) in [(200, 2), (200, 1), (404, 1), (200, 2)] {
            assert_eq!(links(&mut client, 103).len(), count);
            let response = client.response().is(status);
            assert_eq!(response.body.len() as u64, response.length());
        }
    });
}

#[test]
fn only_browsers_that_load_a_page_get_links_ahead() {
    let server = never_at_hand(&["--cache", "off"]);
    for text in [
        request("GET", "/ostype", &[]),
        request("GET", "/ostype", &["Sec-Fetch-Mode: cors"]),
        request("HEAD", "/ostype", &[NAVIGATES]),
        format!("GET /ostype HTTP/1.0\r\n{NAVIGATES}\r\n\r\n"),
    ] {
        if text.contains("HTTP/1.0") && http2::leaves_out("there is one version") {
            continue;
        }
        let mut client = server.connect();
        client.send(text);
        assert_eq!(links(&mut client, 200), LINKS);
    }
}

#[test]
fn a_page_that_is_at_hand_comes_at_once_with_its_links() {
    let site = Site::new();
    site.file("ostype", "kept");
    let kept = Server::on(
        &site,
        &[&rules().each_ref().map(String::as_str)[..], &["--revalidate", "1h"]].concat(),
    );
    // The kernel may have to be asked for the file once.
    kept.get("/ostype").is(200);
    let mut client = kept.connect();
    client.send(request("GET", "/ostype", &[NAVIGATES]));
    assert_eq!(links_of(&client.response().is(200)), LINKS);
    site.file("index.html", "index");
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(rules());
    command.args(["--header", "*.js Link: <x>; rel=next", "--stat-threads", "0"]);
    let server = Server::start(command, 1);
    for _ in 0..2 {
        let index = server.ask("/", &[NAVIGATES]).is(200);
        assert_eq!((index.text(), index.field("Link")), ("index", Some(LINKS[0])));
    }
}
