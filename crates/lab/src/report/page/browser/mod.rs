//! Tests of the page in a real browser: headless Chromium, if it is installed.

use std::path::Path;
use std::process::Command;

use drover_testing::browser::{PROGRAMS, chromium};
use serde_json::Value;

use super::render;
use crate::report::model::Report;
use crate::report::testing::{Builder, quick, rates, text};

/// What a browser reports of the page in a frame of `width` pixels, after everything was drawn and every switch was
/// used.
fn probe(folder: &Path, page: &str, width: u32, is_dark: bool) -> Option<Value> {
    let program = chromium()?;
    let (before, after) = (include_str!("before.js"), include_str!("after.js"));
    let page = page.replacen("</head>", &format!("<script>{before}</script></head>"), 1).replacen(
        "</body>",
        &format!("<script>{after}</script></body>"),
        1,
    );
    std::fs::write(folder.join("page.html"), page).unwrap();
    let frame = format!(
        "<!DOCTYPE html><body><iframe src=\"page.html\" style=\"width:{width}px;height:900px;border:0\">\
         </iframe><script>addEventListener('message', (event) => {{\
         const pre = document.createElement('pre'); pre.id = 'probe';\
         pre.textContent = event.data; document.body.append(pre); }});</script></body>"
    );
    std::fs::write(folder.join("frame.html"), frame).unwrap();
    let output = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--virtual-time-budget=60000", "--window-size=1400,1000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)))
        .arg(format!("file://{}", folder.join("frame.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split("<pre id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let text = found.unwrap_or_else(|| panic!("no answer from the page: {dom:.2000}"));
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&text).unwrap())
}

fn page() -> String {
    let ids = ["settle-time", "dispatch-throughput", "raw-file-io", "thread-starvation"];
    render(&Report::of(&quick(&ids, 6)))
}

#[test]
fn a_browser_draws_every_figure_without_an_error_at_every_width() {
    let folder = tempfile::tempdir().unwrap();
    let page = page();
    for (width, is_dark) in [(1300, false), (360, true)] {
        let Some(found) = probe(folder.path(), &page, width, is_dark) else {
            return drover_testing::skip!("no Chromium ({}) is installed", PROGRAMS.join(", "));
        };
        assert_eq!(found["errors"], serde_json::json!([]), "{width}");
        let scrolls = found["scroll_width"].as_f64().unwrap();
        assert!(scrolls <= f64::from(width), "{scrolls} px wide in {width}: {}", found["widest"]);
        let figures = found["figures"].as_array().unwrap();
        assert_eq!(figures.len(), page.matches("<figure class=\"plot\"").count());
        for figure in figures {
            assert!(figure["marks"].as_u64().unwrap() > 0, "nothing is drawn: {figure}");
            assert_eq!(figure["others_changed"], 0, "a switch reaches other figures: {figure}");
            assert_eq!(figure["hides"], true, "the legend hides nothing: {figure}");
        }
        assert!(found["forests"].as_u64().unwrap() > 0, "{found}");
        assert!(found["orders"].as_u64().unwrap() >= 4, "{found}");
        assert_eq!(found["read_aloud"], true, "arrow keys read no point");
        assert!(found["csv_lines"].as_u64().unwrap() > 10, "{found}");
        assert_eq!((&found["is_dark"], &found["paper_is_light"]), (&is_dark.into(), &true.into()));
    }
}

#[test]
fn a_session_without_a_run_is_a_page_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let record = Builder::new()
        .experiment(&text("empty", ""), 0, |_, _, _| {})
        .pending("pipes")
        .refused("cold-readers", "no FUSE here")
        .judged();
    let page = render(&Report::of(&record));
    let Some(found) = probe(folder.path(), &page, 360, false) else {
        return drover_testing::skip!("no Chromium ({}) is installed", PROGRAMS.join(", "));
    };
    assert_eq!(found["errors"], serde_json::json!([]));
    assert!(found["scroll_width"].as_f64().unwrap() <= 360.0, "{found}");
}

/// Few levels are ticks themselves; many have ticks at round numbers.
#[test]
fn a_logarithmic_axis_names_its_highest_level() {
    let folder = tempfile::tempdir().unwrap();
    for levels in [
        "10, 30, 100, 300, 1000, 2000, 2500, 3000",
        "10, 20, 50, 100, 200, 500, 700, 1000, 2000, 2500, 3000",
        "252, 500, 1000, 1500, 2000, 2250, 2500, 2750, 3000",
    ] {
        let text = text("one", "").replace("levels = [10, 100]", &format!("levels = [{levels}]"));
        let record = Builder::new().experiment(&text, 6, rates([200.0, 100.0, 50.0], 0.01));
        let page = render(&Report::of(&record.judged()));
        for width in [1300, 360] {
            let Some(found) = probe(folder.path(), &page, width, false) else {
                return drover_testing::skip!("no Chromium ({}) is installed", PROGRAMS.join(", "));
            };
            let panels = found["figures"][0]["ticks"].as_array().unwrap();
            assert!(!panels.is_empty(), "{found}");
            for ticks in panels {
                let ticks = ticks.as_array().unwrap();
                assert_eq!(ticks.last(), Some(&"3000".into()), "{levels}, {width}: {ticks:?}");
                assert!(ticks.len() > 2, "{levels}, {width}: {ticks:?}");
            }
        }
    }
}

#[test]
fn a_browser_prints_it() {
    let Some(program) = chromium() else {
        return drover_testing::skip!("no Chromium ({}) is installed", PROGRAMS.join(", "));
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), page()).unwrap();
    let paper = folder.path().join("page.pdf");
    let output = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--virtual-time-budget=20000", "--no-pdf-header-footer"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--print-to-pdf={}", paper.display()))
        .arg(format!("file://{}", folder.path().join("page.html").display()))
        .output()
        .unwrap();
    let printed = std::fs::read(&paper).unwrap_or_default();
    assert!(printed.starts_with(b"%PDF"), "{}", String::from_utf8_lossy(&output.stderr));
}
