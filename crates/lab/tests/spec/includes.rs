//! Files that include others.

use crate::Memory;

const HEAD: &str = "schema = 'drover.experiment/2'\nid = 'x'\n";

fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let result = Memory::new(files.iter().copied()).read("a/main.toml");
    result.unwrap_err().0.iter().map(ToString::to_string).collect()
}

#[test]
fn included_subjects_come_before_the_file_s_own() {
    let main = format!(
        "{HEAD}include = ['../shared/one.toml', 'two.toml']\n[subject.own]\nserve = []\n[load.http]\n"
    );
    let files = Memory::new([
        ("a/main.toml", main.as_str()),
        ("shared/one.toml", "include = ['three.toml']\n[subject.one]\nserve = []\n"),
        ("shared/three.toml", "[subject.three]\nserve = ['--pin']\n"),
        ("a/two.toml", "include = ['../shared/three.toml']\n[subject.two]\nserve = []\n"),
    ]);
    let experiment = files.read("a/main.toml").unwrap();
    let names: Vec<&str> = experiment.subject.keys().map(String::as_str).collect();
    assert_eq!(names, ["three", "one", "two", "own"]);
}

#[test]
fn a_cycle_is_told_with_its_way() {
    let main = format!("{HEAD}include = ['b.toml']\n[subject.own]\nserve = []\n[load.http]\n");
    let found = faults(&[
        ("a/main.toml", main.as_str()),
        ("a/b.toml", "include = ['c.toml']\n"),
        ("a/c.toml", "\ninclude = ['b.toml']\n"),
    ]);
    assert_eq!(found, ["a/c.toml:2:12: 'b.toml' includes itself: a/b.toml → a/c.toml → a/b.toml"]);
}

#[test]
fn a_name_belongs_to_one_file() {
    let main = format!("{HEAD}include = ['b.toml']\n[subject.own]\nserve = []\n[load.http]\n");
    let b = "[subject.own]\nserve = []\n";
    let found = faults(&[("a/main.toml", main.as_str()), ("a/b.toml", b)]);
    let expected = "a/main.toml:4:10: the subject 'own' is also in a/b.toml:1; rename one of them";
    assert_eq!(found, [expected]);
}

#[test]
fn faults_of_included_files_have_their_names() {
    let main = format!("{HEAD}include = ['b.toml', 'c.toml']\n[load.http]\nrats = 1\n");
    let b = "[subject.own]\nserver = []\n";
    let found = faults(&[("a/main.toml", main.as_str()), ("a/b.toml", b)]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("a/b.toml:2:1: unknown key 'server'"), "{found:#?}");
    assert!(found[1].starts_with("a/main.toml:3:22: cannot read 'a/c.toml'"), "{found:#?}");
    assert!(found[2].starts_with("a/main.toml:5:1: unknown key 'rats'"), "{found:#?}");
}

#[test]
fn subjects_may_all_be_included() {
    let main = format!("{HEAD}include = ['b.toml']\n[load.http]\n");
    let b = "[subject.own]\nserve = []\n";
    let files = [("a/main.toml", main.as_str()), ("a/b.toml", b)];
    assert!(Memory::new(files).read("a/main.toml").is_ok());
    let found = faults(&[("a/main.toml", main.as_str()), ("a/b.toml", "")]);
    assert_eq!(
        found,
        ["a/main.toml:1:1: there is nothing to measure: write a table [subject.NAME]"]
    );
}

#[test]
fn published_values_may_be_in_a_file_of_their_own() {
    let main = format!(
        "{HEAD}[subject.own]\nserve = []\n[factor.rate]\nlevels = [1]\n[load.http]\nrate = '{{rate}}'\n\
         [[claim]]\nid = 'a'\ntext = 't'\neffect = {{ offered = 'response-rate', over = 'rate', of = 'own' }}\n\
         holds = {{ above = 1 }}\npublished = {{ figure = '1', csv = 'p/v.csv' }}\n"
    );
    let csv = "# from the figure\nsubject, rate, value\nown, 1, 0.5\nown, 2, 1\n";
    let files = [("a/main.toml", main.as_str()), ("a/p/v.csv", csv)];
    let experiment = Memory::new(files).read("a/main.toml").unwrap();
    let rows = experiment.claim[0].published.as_ref().unwrap().rows();
    assert_eq!((rows.len(), rows[1].value), (2, 1.0));
    let found = faults(&[("a/main.toml", main.as_str()), ("a/p/v.csv", "subject,value\nown\n")]);
    assert_eq!(found, ["a/p/v.csv:2:1: 1 columns, and 2 names"]);
    let found = faults(&[("a/main.toml", main.as_str())]);
    assert!(found[0].starts_with("a/main.toml:14:35: cannot read 'a/p/v.csv'"), "{found:#?}");
}
