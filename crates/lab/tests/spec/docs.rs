//! The shipped schema and the generated parts of the documentation are what the types say.
//!
//! `UPDATE=1 cargo test -p drover-lab --test spec docs` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use lab::spec::{built_in, reference, schema};

use crate::Memory;

/// What stands in front of the page's example of faults; what is said of it is in the next block.
const FAULTY: &str = "<!-- faulty -->\n```\n";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments.md")
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
        let begin = format!("<!-- generated: {name} -->\n");
        let start = page.find(&begin).expect("the page has the marker") + begin.len();
        let end = start + page[start..].find("<!-- end -->").expect("the part ends");
        page.replace_range(start..end, &format!("\n{text}\n"));
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
