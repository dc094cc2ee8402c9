//! Makes the pictures of the documentation again, and what its pages say of a session, from a session's folder:
//! `cargo run -p drover-lab --example pictures -- FOLDER [NOTE]`.
//!
//! What is there of experiments that the session has not run stays as it was. NOTE is what has to be said of the machine beside its
//! line. `docs/experiments/pictures.toml` says which pictures there are. Needs Chromium and chromedriver.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use drover_lab::record::SessionRecord;
use drover_lab::report::docs;
use drover_lab::report::findings::SessionResults;
use drover_lab::report::model::Report;
use drover_lab::report::prose::SessionMedians;
use drover_lab::spec::built_in;
use drover_testing::browser::Browser;
use serde::Deserialize;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How wide a drawing is, in pixels, unless it says so.
const WIDTH: u32 = 680;

/// The largest picture, in bytes: pages stay quick to load.
const LARGEST: usize = 80_000;

/// What `pictures.toml` holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(default)]
    drawing: Vec<Value>,
    #[serde(default)]
    view: Vec<View>,
}

/// A part of the report as a browser shows it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    /// The picture's name, without `.webp`.
    name: String,
    /// The id of the element that is at the top; the page's beginning unless given.
    at: Option<String>,
    /// The size in pixels.
    width: u32,
    height: u32,
    #[serde(default)]
    dark: bool,
    /// What is run before, as opening a part that is folded.
    #[serde(default)]
    script: String,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().ok_or("usage: FOLDER [NOTE]")?).canonicalize()?;
    let note = words.next().unwrap_or_default();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let experiments = docs.join("experiments");
    let record = SessionRecord::read(&folder)?;
    drover_lab::report::write(&folder, None, &record)?;
    let report = Report::of(&record);
    let newer = SessionResults::of(&report, &note);
    let is_measured = |experiment: &str| newer.experiments.contains_key(experiment);
    let is_whole = built_in::names().iter().all(|name| is_measured(name));
    let (mut results, mut medians) = (SessionResults::default(), SessionMedians::default());
    if !is_whole {
        results = serde_json::from_str(&fs::read_to_string(experiments.join("results.json"))?)?;
        medians = serde_json::from_str(&fs::read_to_string(experiments.join("medians.json"))?)?;
    }
    let results = results.and(newer.clone());
    let medians = medians.and(SessionMedians::of(&report));
    let text = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(experiments.join("results.json"), text)?;
    fs::write(experiments.join("medians.json"), serde_json::to_string(&medians)? + "\n")?;
    for (path, text) in docs::pages(&experiments, &results, &medians)? {
        fs::write(path, text)?;
    }
    let text = fs::read_to_string(experiments.join("pictures.toml"))?;
    let manifest: Manifest = toml::from_str(&text)?;
    let Some(browser) = Browser::start()? else {
        return Err("no Chromium with chromedriver is installed".into());
    };
    let page = folder.join(drover_lab::report::PAGE);
    browser.show_as(1200, 900, false)?;
    browser.open(&format!("file://{}", page.display()))?;
    let pictures = docs.join("pictures");
    fs::create_dir_all(&pictures)?;
    for mut drawing in manifest.drawing {
        let figure = drawing["figure"].as_str().unwrap_or_default();
        if !is_measured(figure.split("--").next().unwrap_or_default()) {
            continue;
        }
        let name = drawing["name"].as_str().ok_or("a drawing has no name")?.to_owned();
        if drawing["width"].is_null() {
            drawing["width"] = json!(WIDTH);
        }
        let drawn = browser.run(include_str!("draw.js"), &[drawing])?;
        let text = drawn.as_str().ok_or("the page has drawn nothing")?;
        keep(&pictures.join(format!("{name}.svg")), text.as_bytes())?;
    }
    for view in manifest.view.iter().filter(|_| is_whole) {
        keep(&pictures.join(format!("{}.webp", view.name)), &look(&browser, &page, view)?)?;
    }
    Ok(())
}

fn look(browser: &Browser, page: &Path, view: &View) -> Result<Vec<u8>> {
    browser.show_as(view.width, view.height, view.dark)?;
    browser.open(&format!("file://{}", page.display()))?;
    // What is drawn when it comes into view is drawn before the picture is taken.
    let script = format!(
        "{};\nconst node = document.getElementById(arguments[0]);\n\
         for (let it = node; it; it = it.parentElement) if (it.tagName === \"DETAILS\") it.open = true;\n\
         node?.scrollIntoView();\n\
         const frame = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then, 200)));\n\
         return frame().then(() => node?.scrollIntoView()).then(frame);",
        view.script
    );
    browser.run(&script, &[json!(view.at)])?;
    Ok(browser.picture()?)
}

fn keep(path: &Path, picture: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().display();
    println!("{name}: {} KB", picture.len() / 1000);
    if picture.len() > LARGEST {
        println!("    too large: show fewer subjects, panels or pixels");
    }
    Ok(fs::write(path, picture)?)
}
