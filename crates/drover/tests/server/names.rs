//! What a path means beside the file of its name: the list of a directory, a page without its suffix, and the page of
//! an application that handles its paths itself.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::harness::{Response, Server, Site, drover, on_every_mechanism};

const JSON: &str = "Accept: application/json";
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/json;q=0.1";

fn list(server: &Server, target: &str) -> Value {
    let response = server.ask(target, &[JSON]).is(200);
    assert_eq!(response.field("Content-Type"), Some("application/json"));
    assert_eq!(response.field("Vary"), Some("Accept"));
    serde_json::from_slice(&response.body).unwrap()
}

fn names(listing: &Value) -> Vec<&str> {
    listing["entries"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// A folder without an index, with names that a page or a link could trip over.
fn folder() -> Site {
    let site = Site::new();
    for name in ["b", "a:b", "<i>&amp;\"'.txt", "with space%20", ".hidden", "sub/inner"] {
        site.file(&format!("folder/{name}"), name);
    }
    let raw = std::ffi::OsStr::from_bytes(b"folder/\xff");
    fs::write(site.path().join(raw), "raw").unwrap();
    symlink("/etc/hostname", site.path().join("folder/outside")).unwrap();
    site.file("indexed/index.html", "<h1>Index</h1>");
    site
}

#[test]
fn a_folder_is_listed_on_every_mechanism() {
    let site = folder();
    on_every_mechanism(|mechanism| {
        for openers in ["2", "0"] {
            let flags = ["--listing", "--stat-threads", openers, "--dispatch", mechanism.name];
            let server = Server::on(&site, &flags);
            let listing = list(&server, "/folder/?query");
            let expected = ["sub", "<i>&amp;\"'.txt", "a:b", "b", "with space%20", "\u{fffd}"];
            assert_eq!(names(&listing), expected);
            assert_eq!(listing["cut"], false);
            assert_eq!(listing["entries"][3]["size"], 1);
            assert_eq!(listing["entries"][0]["type"], "directory");
            assert_eq!(names(&list(&server, "/")), ["folder", "indexed"]);
            assert_eq!(server.get("/indexed/").is(200).text(), "<h1>Index</h1>");
            assert_eq!(server.get("/folder").is(301).field("Location"), Some("/folder/"));
            server.get("/none/").is(404);
        }
    });
}

/// What is linked is what is listed: each link leads to its file.
#[test]
fn every_link_of_a_list_leads_to_its_file() {
    let site = folder();
    let server = Server::on(&site, &["--listing"]);
    let listing = list(&server, "/folder/");
    let page = server.ask("/folder/", &[BROWSER]).is(200);
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(page.field("Content-Security-Policy").unwrap().contains("default-src 'none'"));
    for entry in listing["entries"].as_array().unwrap() {
        let (name, href) = (entry["name"].as_str().unwrap(), entry["href"].as_str().unwrap());
        let in_html = format!("<a href=\"{}\">", href.replace('&', "&amp;").replace('\'', "&#39;"));
        assert!(page.text().contains(&in_html), "{in_html}\n{}", page.text());
        let target = format!("/folder/{}", href.strip_prefix("./").unwrap());
        let response = server.get(&target);
        match entry["type"].as_str().unwrap() {
            "directory" => assert_eq!(names(&list(&server, &target)), ["inner"]),
            _ if name == "\u{fffd}" => assert_eq!(response.is(200).text(), "raw"),
            _ => assert_eq!(response.is(200).text(), name),
        }
    }
    assert!(!page.text().contains("<i>"), "a name is no markup");
    assert!(page.text().contains("&lt;i&gt;&amp;amp;&quot;&#39;.txt</a>"));
}

#[test]
fn a_list_of_hidden_files_is_for_those_who_serve_them() {
    let site = folder();
    let server = Server::on(&site, &["--listing", "--hidden"]);
    assert!(names(&list(&server, "/folder/")).contains(&".hidden"));
}

/// Although files are believed for an hour: the list is not older than its directory.
#[test]
fn what_comes_into_a_folder_shows_at_once() {
    let site = folder();
    let server = Server::on(&site, &["--listing", "--revalidate", "1h"]);
    assert_eq!(names(&list(&server, "/folder/sub/")), ["inner"]);
    site.file("folder/sub/inner", "longer than before");
    site.file("folder/sub/new", "");
    let listing = list(&server, "/folder/sub/");
    assert_eq!((names(&listing).len(), &listing["entries"][0]["size"]), (2, &18.into()));
}

#[test]
fn without_the_flag_nothing_is_listed_and_the_root_says_what_to_do() {
    let site = folder();
    let server = Server::on(&site, &[]);
    assert!(server.get("/").is(404).text().contains("--listing"));
    assert!(!server.get("/folder/").is(404).text().contains("--listing"));
    site.file("index.html", "here");
    assert_eq!(server.get("/").is(200).text(), "here");
}

#[test]
fn a_page_may_be_asked_for_without_its_suffix() {
    let site = Site::new();
    site.file("about.html", "about");
    site.file("both.html", "page");
    site.file("both", "file");
    site.file("folder/index.html", "folder");
    site.file("folder.html", "page of the folder's name");
    site.file("plain/index.html", "folder without a page of its name");
    on_every_mechanism(|mechanism| {
        let flags = ["--html-suffix", "--revalidate", "1h", "--dispatch", mechanism.name];
        let server = Server::on(&site, &flags);
        let mut client = server.connect();
        for _ in 0..2 {
            let about = client.get("/about?query").is(200);
            assert_eq!(about.field("Content-Type"), Some("text/html; charset=utf-8"));
            assert_eq!(about.text(), "about");
            assert_eq!(client.get("/both").is(200).text(), "file");
            assert_eq!(client.get("/both.html").is(200).text(), "page");
            let page = client.get("/folder").is(200);
            assert_eq!(page.text(), "page of the folder's name");
            assert_eq!(client.get("/folder/").is(200).text(), "folder");
            assert_eq!(client.get("/plain").is(301).field("Location"), Some("/plain/"));
            client.get("/about/").is(404);
            client.get("/none").is(404);
        }
    });
    Server::on(&site, &[]).get("/about").is(404);
}

/// Although the page is kept for an hour.
#[test]
fn a_file_that_comes_is_served_in_place_of_the_page_with_its_suffix() {
    let site = Site::new();
    site.file("about.html", "page");
    let server = Server::on(&site, &["--html-suffix", "--revalidate", "1h"]);
    assert_eq!(server.get("/about").is(200).text(), "page");
    site.file("about", "file");
    assert_eq!(server.get("/about").is(200).text(), "file");
}

#[test]
fn browsers_get_the_application_s_page_and_scripts_a_404() {
    let site = Site::new();
    site.file("index.html", "application");
    site.file("app.js", "script");
    on_every_mechanism(|mechanism| {
        for cache in ["64M", "off"] {
            let flags =
                ["--fallback", "index.html", "--cache", cache, "--dispatch", mechanism.name];
            let server = Server::on(&site, &flags);
            let mut client = server.connect();
            let is_page = |response: Response| assert_eq!(response.is(200).text(), "application");
            for _ in 0..2 {
                is_page(client.ask("/users/7?tab=1", &[BROWSER]));
                is_page(client.ask("/users/", &[BROWSER]));
                is_page(client.ask("/users", &["Sec-Fetch-Mode: navigate", "Accept: */*"]));
                is_page(client.get("/"));
                assert_eq!(client.ask("/app.js", &[BROWSER]).is(200).text(), "script");
                client.get("/users/7").is(404);
                client.ask("/users/7", &[JSON]).is(404);
                client.ask("/none.js", &["Sec-Fetch-Mode: no-cors", BROWSER]).is(404);
            }
        }
    });
}

/// A fallback that is missing is a 404, and one that comes is used at once.
#[test]
fn a_fallback_may_be_missing() {
    let site = Site::new();
    let server = Server::on(&site, &["--fallback", "app/page.html"]);
    server.ask("/none", &[BROWSER]).is(404);
    site.file("app/page.html", "application");
    assert_eq!(server.ask("/none", &[BROWSER]).is(200).text(), "application");
}

/// Of procfs no name is ever at hand: each candidate is waited for, one after the other, and none twice.
#[test]
fn candidates_that_all_have_to_be_waited_for_come_to_an_end() {
    for flags in [
        &["--html-suffix", "--listing", "--fallback", "ostype", "--error-page", "404=none"][..],
        &["--html-suffix"],
    ] {
        let mut command = drover();
        command.arg("serve").arg("/proc/sys/kernel").args(flags);
        let server = Server::start(command, 1);
        let status = if flags.len() > 1 { 200 } else { 404 };
        for target in ["/none", "/none/", "/random/none"] {
            server.ask(target, &[BROWSER]).is(status);
        }
        server.get("/none").is(404);
        server.get("/ostype").is(200);
        assert_eq!(server.get("/random").is(301).field("Location"), Some("/random/"));
    }
}
