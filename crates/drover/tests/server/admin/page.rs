//! The live page: whole without a script, and in a browser, if one is installed.

use drover_testing::browser::{Browser, DRIVER, PROGRAMS};
use serde_json::{Value, json};

use super::{PROCESSES, THREADS, get, once, watched};
use crate::harness::{Site, request};

#[test]
fn the_page_is_whole_without_a_script_and_asks_nobody_else() {
    let site = Site::new();
    site.file("a", "hello");
    for (workers, kind) in [(THREADS, "2 worker threads"), (PROCESSES, "2 worker processes")] {
        let (server, admin) = watched(&site, workers);
        for _ in 0..3 {
            server.get("/a").is(200);
        }
        let response = get(admin, "/status").is(200);
        assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
        let page = response.text();
        assert!(page.contains("data-key=\"all.requests\" data-form=\"count\">3<"), "{page}");
        assert!(page.contains("<noscript><meta http-equiv=\"refresh\""), "{page}");
        assert!(page.contains(kind) && page.contains(&server.address().to_string()), "{page}");
        assert!(!page.contains("{{") && !page.contains("src="), "{page}");
        let links = page.split("href=\"").skip(1).map(|it| it.split('"').next().unwrap());
        assert!(links.clone().count() >= 3);
        for link in links {
            assert!(!link.contains("//"), "{link}");
        }
    }
}

#[test]
fn a_browser_shows_what_the_server_does_without_an_error() {
    let site = Site::new();
    site.file("a", "hello");
    site.sparse("large", 64 << 20);
    let Some(browser) = Browser::start().unwrap() else {
        return drover_testing::skip!("no Chromium ({}) or no {DRIVER}", PROGRAMS.join(", "));
    };
    let run = |script: &str| browser.run(script, &[]).unwrap();
    let shown = |key: &str| {
        let script = "return document.querySelector(`[data-key=\"${arguments[0]}\"]`).textContent";
        let found = browser.run(script, &[json!(key)]).unwrap();
        found.as_str().unwrap().to_owned()
    };
    for (width, is_dark, workers) in [(360, true, THREADS), (1300, false, PROCESSES)] {
        let (server, admin) = watched(&site, &[workers, &["--grace", "10m"]].concat());
        browser.show_as(width, 900, is_dark).unwrap();
        browser.open(&format!("http://{admin}/status")).unwrap();
        assert_eq!(shown("all.requests"), "0");
        // What a page that loads itself again has lost.
        run("window.isFirst = true");
        let mut client = server.connect();
        for _ in 0..3 {
            client.get("/a").is(200);
        }
        once(|| (shown("all.requests") == "3" && shown("open") == "1").then_some(()));
        // The curve has as many points as seconds have passed.
        let points = "return document.getElementById('history').getAttribute('points')";
        once(|| (run(points).as_str().unwrap().split_whitespace().count() > 2).then_some(()));
        assert_eq!(run("return document.getElementById('link').textContent"), "live, every second");
        assert_eq!(run("return window.isFirst"), true);
        let wide = run("return document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "{wide} pixels in {width}");
        let ground = run("return getComputedStyle(document.body).backgroundColor");
        let of_scheme = if is_dark { "rgb(20, 23, 27)" } else { "rgb(255, 255, 255)" };
        assert_eq!(ground, of_scheme);
        drop(client);
        let mut client = server.connect();
        client.send(request("GET", "/large", &["Connection: close"]));
        client.response_head().is(200);
        server.terminate();
        once(|| (shown("state") == "stopping").then_some(()));
        assert_eq!(browser.console().unwrap(), Vec::<String>::new());
        assert_eq!(client.drain().0, 64 << 20);
        // The server has ended: the page says that its numbers are old.
        once(|| {
            let told = run("return document.getElementById('link').textContent");
            told.as_str().is_some_and(|told| told.contains("no answer")).then_some(())
        });
        browser.console().unwrap();
    }
}

/// A page of which no script runs shows the newest numbers, because it loads itself again.
#[test]
fn a_browser_without_scripts_shows_the_newest_numbers() {
    let (server, admin) = watched(&Site::new(), &[]);
    let Some(browser) = Browser::start().unwrap() else {
        return drover_testing::skip!("no Chromium ({}) or no {DRIVER}", PROGRAMS.join(", "));
    };
    browser.command("Emulation.setScriptExecutionDisabled", &json!({ "value": true })).unwrap();
    browser.open(&format!("http://{admin}/status")).unwrap();
    server.get("/none").is(404);
    once(|| {
        let node = |name: &str, parameters: Value| browser.command(name, &parameters).ok();
        let root = node("DOM.getDocument", json!({ "depth": 0 }))?["root"]["nodeId"].clone();
        let selector = "[data-key=\"all.requests\"]";
        let found = node("DOM.querySelector", json!({ "nodeId": root, "selector": selector }))?;
        let html = node("DOM.getOuterHTML", json!({ "nodeId": found["nodeId"] }))?;
        html["outerHTML"].as_str()?.contains(">1<").then_some(())
    });
}
