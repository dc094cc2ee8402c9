//! The links of the documentation: each leads to a file that is there, and to a heading that it has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every page of the documentation, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.clone(), root.join("docs"), root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && folder != root {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 10, "the pages were not found under {}", root.display());
    found
}

/// The lines that are no code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of links and pictures in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The names that a page's headings have in links, as GitHub makes them.
fn headings(page: &str) -> BTreeSet<String> {
    let titles = prose(page).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then_some(title)?.strip_prefix(' ')
    });
    let name = |title: &str| {
        let kept = title.trim().chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    titles.map(name).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut links = 0;
    for (path, page) in pages() {
        for (line, target) in
            prose(&page).flat_map(|(at, line)| targets(line).map(move |target| (at + 1, target)))
        {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let has_heading = || {
                let page = fs::read_to_string(&there).unwrap_or_default();
                heading.is_empty() || headings(&page).contains(heading)
            };
            if !there.exists() || !has_heading() {
                broken.push(format!("{}:{line}: {target}", path.display()));
            }
        }
    }
    assert!(links > 50, "{links} links");
    assert!(broken.is_empty(), "links to nothing:\n{}", broken.join("\n"));
}

#[test]
fn headings_have_github_s_names() {
    let page = "# A page\n```\n# code\n```\n## `auto`: what, and why?\n#no\n";
    let expected = ["a-page", "auto-what-and-why"].map(str::to_owned);
    assert_eq!(headings(page), BTreeSet::from(expected));
    assert_eq!(targets("[a](b) ![c](d.svg) (e)").collect::<Vec<_>>(), ["b", "d.svg"]);
}
