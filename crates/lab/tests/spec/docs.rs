//! The shipped schema and the generated parts of the documentation are what the types say.
//!
//! `UPDATE=1 cargo test -p drover-lab --test spec docs` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use drover_lab::report::docs;
use drover_lab::report::findings::SessionResults;
use drover_lab::report::prose::SessionMedians;
use drover_lab::spec::built_in;
use drover_lab::spec::schema::{self, reference};

use crate::Memory;

/// What stands in front of the page's example of faults; what is said of it is in the next block.
const FAULTY: &str = "<!-- faulty -->\n```\n";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page() -> PathBuf {
    docs().join("experiments.md")
}

/// Compares a file with what it should be, or writes it.
#[track_caller]
fn same(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let command = "UPDATE=1 cargo test -p drover-lab --test spec docs";
    assert!(found == expected, "{} is not up to date: {command}", path.display());
}

#[test]
fn the_shipped_schema_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiment.schema.json");
    same(&path, &schema::text());
}

#[test]
fn the_reference_is_that_of_the_types() {
    let all: Vec<_> =
        built_in::names().iter().map(|name| built_in::experiment(name).unwrap().unwrap()).collect();
    let mut page = fs::read_to_string(self::page()).unwrap();
    for (name, text) in [
        ("keys", reference::keys()),
        ("effects", reference::effects()),
        ("metrics", reference::metrics()),
        ("experiments", reference::experiments(&all)),
    ] {
        page = docs::fill(&page, name, &text).unwrap();
    }
    let start = page.find(FAULTY).expect("the page has a faulty example") + FAULTY.len();
    let (faulty, rest) = page[start..].split_once("```\n").unwrap();
    let faults = Memory::new([("mine.toml", faulty)]).read("mine.toml").unwrap_err();
    let shown = page.len() - rest.len() + rest.find("```\n").unwrap() + 4;
    let end = shown + page[shown..].find("```").unwrap();
    page.replace_range(shown..end, &format!("{faults}\n"));
    same(&self::page(), &page);
}

/// Every example of the page that is a whole experiment is one without faults.
#[test]
fn the_page_s_examples_are_read() {
    let page = fs::read_to_string(page()).unwrap();
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|example| example.contains("schema ="))
        .collect();
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for example in examples {
        if let Err(faults) = Memory::new([("page.toml", example)]).read("page.toml") {
            panic!("{faults}\n{example}");
        }
    }
}

/// The facts and the claims of a page are those of its experiment, its findings those of `results.json`.
#[test]
fn every_experiment_has_a_page_that_is_up_to_date() {
    let folder = docs().join("experiments");
    let results = fs::read_to_string(folder.join("results.json")).unwrap();
    let results: SessionResults = serde_json::from_str(&results).unwrap();
    let medians = fs::read_to_string(folder.join("medians.json")).unwrap();
    let medians: SessionMedians = serde_json::from_str(&medians).unwrap();
    let pages = docs::pages(&folder, &results, &medians).unwrap();
    assert_eq!(pages.len(), built_in::names().len() + 2);
    for (path, text) in pages {
        same(&path, &text);
    }
}

/// What a page says of measurements has its numbers from the session's data, by markers. Other numbers in these parts are those of
/// the experiment's file: its levels and thresholds.
#[test]
fn no_number_of_a_page_is_written_by_hand() {
    let mut unmarked = Vec::new();
    for name in built_in::names() {
        let page = fs::read_to_string(docs().join(format!("experiments/{name}.md"))).unwrap();
        let file = format!("experiments/{name}.toml");
        let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let experiment = fs::read_to_string(experiment).unwrap();
        let known: BTreeSet<String> = numbers(&experiment).into_iter().collect();
        for part in ["## What was measured here", "## What to read from it"] {
            let Some((_, rest)) = page.split_once(part) else { continue };
            let prose = rest.split("\n## ").next().unwrap().split("<!-- generated").next().unwrap();
            let own = numbers(&without_marked(prose)).into_iter().filter(|it| !known.contains(it));
            unmarked.extend(own.map(|number| format!("{name}, {part}: {number}")));
        }
    }
    assert!(unmarked.is_empty(), "numbers without data:\n{}", unmarked.join("\n"));
}

/// Prose without marked numbers, code, and the targets of links.
fn without_marked(prose: &str) -> String {
    let mut text = prose.to_owned();
    for (begin, end) in [("<!-- = ", "<!-- . -->"), ("`", "`"), ("](", ")")] {
        while let Some(start) = text.find(begin) {
            let rest = &text[start + begin.len()..];
            let length = rest.find(end).map_or(rest.len(), |it| it + end.len());
            text.replace_range(start..start + begin.len() + length, " ");
        }
    }
    text
}

/// The numbers in a text, without commas between thousands; no years, and none that are parts of names.
fn numbers(text: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || ['.', ',', '_', '-'].contains(&letter);
    let words = text.split(|letter: char| !is_part(letter));
    let words =
        words.map(|word| word.trim_matches(|it: char| !it.is_alphanumeric()).replace(',', ""));
    let is_number = |word: &String| word.parse::<f64>().is_ok_and(f64::is_finite);
    let is_year = |word: &String| word.parse::<u32>().is_ok_and(|it| (1990..2030).contains(&it));
    words.filter(|word| is_number(word) && !is_year(word)).collect()
}

/// The files in this folder with one of these extensions.
fn files(folder: &Path, extensions: &[&str]) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let wanted = entries.filter(|path| {
        path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension))
    });
    wanted.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Pictures are made from a session, and none of them loads anything, is large or is forgotten.
#[test]
fn every_picture_is_shown_small_and_complete() {
    let folder = docs().join("pictures");
    let pages: Vec<String> = ["..", ".", "experiments"]
        .iter()
        .flat_map(|it| files(&docs().join(it), &["md"]).into_iter().map(move |name| (it, name)))
        .map(|(it, name)| fs::read_to_string(docs().join(it).join(name)).unwrap())
        .collect();
    let manifest = fs::read_to_string(docs().join("experiments/pictures.toml")).unwrap();
    let mut total = 0;
    for name in files(&folder, &["svg", "webp"]) {
        let picture = fs::read(folder.join(&name)).unwrap();
        total += picture.len();
        assert!(picture.len() <= 80_000, "{name} has {} bytes", picture.len());
        assert!(pages.iter().any(|page| page.contains(&format!("pictures/{name}"))), "{name}");
        let (stem, kind) = name.rsplit_once('.').unwrap();
        assert!(manifest.contains(&format!("name = \"{stem}\"\n")), "{name} cannot be made again");
        if kind == "svg" {
            let text = String::from_utf8(picture).unwrap();
            for banned in ["<script", "<image", "href", "url(", "font-face", "/home/", "/tmp/"] {
                assert!(!text.contains(banned), "{name}: {banned}");
            }
        }
    }
    assert!(total <= 1_500_000, "all pictures have {total} bytes");
    for experiment in built_in::names() {
        let page = fs::read_to_string(docs().join(format!("experiments/{experiment}.md"))).unwrap();
        assert!(page.contains("](../pictures/"), "{experiment} shows no picture");
    }
}
