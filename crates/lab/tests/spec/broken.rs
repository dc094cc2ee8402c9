//! Broken files: each fault is told with its line, its column and a remedy, and all faults at once.

use crate::{Memory, WHOLE};

/// The faults of [`WHOLE`] with one text in place of another, without the file's name.
#[track_caller]
fn faults(text: &str, replacement: &str) -> Vec<String> {
    assert_eq!(WHOLE.matches(text).count(), 1, "{text:?} has to be there once");
    faults_of(&WHOLE.replace(text, replacement))
}

fn faults_of(text: &str) -> Vec<String> {
    let Err(faults) = Memory::new([("f.toml", text)]).read("f.toml") else { return Vec::new() };
    let faults = faults.0.iter().map(ToString::to_string);
    faults.map(|fault| fault.strip_prefix("f.toml:").expect("the file's name").to_owned()).collect()
}

#[track_caller]
fn expect(text: &str, replacement: &str, fault: &str) {
    assert_eq!(faults(text, replacement), [fault]);
}

#[test]
fn an_unknown_key() {
    expect(
        "connection_rate =",
        "conection_rate =",
        "41:1: unknown key 'conection_rate' of http; the nearest is 'connection_rate'",
    );
}

/// An experiment has a folder of its own below that of its session.
#[test]
fn an_id_that_is_no_name_of_a_folder() {
    for id in ["", "../x", "a/b", ".hidden", "report.html", "two words"] {
        let text =
            format!("schema = 'drover.experiment/2'\nid = '{id}'\n[subject.a]\nserve = []\n");
        let found = faults_of(&text);
        assert!(
            found.iter().any(|it| it.starts_with("2:6: the id is the name")),
            "{id}: {found:?}"
        );
    }
}

#[test]
fn a_value_of_the_wrong_type() {
    expect(
        "cpus = 2",
        "cpus = true",
        "14:8: cpus is a whole number, or \"{factor}\", not true or false",
    );
    expect("[500, 1000, 2000]", "500", "21:10: levels is a list, not a whole number");
}

#[test]
fn a_missing_key() {
    expect(
        "holds = { above = 1.2 }\n",
        "",
        "55:1: claim needs the key 'holds' (the region in which the effect lies if the statement is true)",
    );
}

#[test]
fn a_text_of_the_wrong_form() {
    expect(
        "timeout = \"5s\"",
        "timeout = \"5 parsecs\"",
        "44:11: timeout: '5 parsecs' is no length of time; write one as in \"300ms\" or \"10s\"",
    );
    expect(
        "bytes = \"64K\"",
        "bytes = \"64 apples\"",
        "37:9: bytes: '64 apples' is no number of bytes; write one as in 4096, \"64K\" or \"1G\"",
    );
}

#[test]
fn a_name_that_is_none_of_a_few() {
    expect(
        "until = \"steady\"",
        "until = \"stedy\"",
        "47:20: until cannot be 'stedy'; the nearest is 'steady'",
    );
}

#[test]
fn an_unknown_kind_of_effect() {
    expect(
        "{ knee = ",
        "{ kneee = ",
        "59:12: unknown key 'kneee' of effect; the nearest is 'knee'",
    );
}

#[test]
fn two_kinds_of_effect() {
    expect(
        "{ knee = \"response-rate\", ",
        "{ knee = \"response-rate\", peak = \"response-rate\", ",
        "59:36: effect has 'knee', 'peak': only one of these",
    );
}

#[test]
fn a_subject_of_no_kind() {
    expect(
        "peer = \"nginx\"",
        "model = true",
        "17:1: subject 'nginx' needs one of the keys 'serve', 'command', 'peer', 'waiters', 'pipes', 'guest'",
    );
}

#[test]
fn an_unknown_subject() {
    expect(
        "of = \"nginx\"",
        "of = \"nginz\"",
        "59:59: no subject is called 'nginz'; the nearest is 'nginx'",
    );
}

#[test]
fn an_unknown_server() {
    expect(
        "peer = \"nginx\"",
        "peer = \"ngnix\"",
        "18:8: no server 'ngnix' is known; the nearest is 'nginx'",
    );
}

#[test]
fn an_unknown_factor() {
    expect(
        "x = \"offered\"",
        "x = \"ofered\"",
        "69:5: no factor is called 'ofered'; the nearest is 'offered'",
    );
}

#[test]
fn a_level_that_the_factor_does_not_have() {
    expect(
        "where = { case = \"idle\"",
        "where = { case = \"bored\"",
        "60:18: 'bored' is no level of the factor 'case': it has idle, busy",
    );
}

#[test]
fn an_unknown_metric() {
    expect(
        "metric = \"refused\"",
        "metric = \"response-rates\"",
        "68:10: no metric is called 'response-rates'; the nearest is 'response-rate'",
    );
}

#[test]
fn an_unknown_case_in_a_preset() {
    expect(
        "cases = [\"idle\"]",
        "cases = [\"idel\"]",
        "76:10: no case is called 'idel'; the nearest is 'idle'",
    );
}

#[test]
fn a_placeholder_without_a_factor() {
    expect(
        "idle = \"{idle}\"",
        "idle = \"{idel}\"",
        "43:8: nothing fills the placeholder {idel}; the nearest is 'idle'; {{idel}} stands for the text itself",
    );
}

#[test]
fn a_factor_that_nothing_uses() {
    expect(
        "[factor.nofile]",
        "[factor.unused]\nlevels = [1]\n[factor.nofile]",
        "26:9: nothing uses the factor 'unused': write {unused} in a subject, the load or the wire",
    );
}

#[test]
fn a_load_that_does_not_drive_the_subject() {
    let text =
        "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\nserve = []\n[load.connects]\n";
    let expected =
        "3:10: the load 'connects' drives subjects with the keys 'waiters', and 'a' is none";
    assert_eq!(faults_of(text), [expected]);
}

#[test]
fn a_region_without_an_inside() {
    expect(
        "{ above = 1.2 }",
        "{ above = 1.2, below = 1.1 }",
        "61:9: nothing is above 1.2 and below 1.1",
    );
    expect("{ above = 1.2 }", "{}", "61:9: holds needs one of the keys 'above', 'below'");
}

#[test]
fn a_syntax_error() {
    let faults = faults("id = \"whole\"", "id = ");
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("2:"), "{faults:?}");
}

#[test]
fn a_file_of_version_one() {
    let text = "id = 'x'\nmechanisms = ['select']\n[workload]\nresponse_bytes = 92\n";
    let faults = faults_of(text);
    assert_eq!(faults.len(), 1);
    let begins = "1:1: this is an experiment of version 1, which is no longer read: version 2 begins with \
                  schema = \"drover.experiment/2\"";
    assert!(faults[0].starts_with(begins), "{faults:?}");
}

#[test]
fn a_file_without_a_version() {
    assert_eq!(
        faults_of("id = 'x'"),
        ["1:1: the key 'schema' is missing: begin the file with schema = \"drover.experiment/2\""]
    );
}

#[test]
fn five_faults_are_told_at_once() {
    let broken = WHOLE
        .replace("connection_rate =", "conection_rate =")
        .replace("cpus = 2", "cpus = [2]")
        .replace("holds = { above = 1.2 }\n", "")
        .replace("x = \"offered\"", "x = \"ofered\"")
        .replace("subjects = [\"select\"", "subjects = [\"selct\"");
    let lines: Vec<String> =
        faults_of(&broken).iter().map(|it| it.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["14", "41", "55", "68", "74"]);
}

/// An experiment of one subject in a virtual machine, with one text in place of another.
fn of_a_guest(text: &str, replacement: &str) -> Vec<String> {
    let whole = "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\n\
                 guest = ['lab', 'wait-queue', '--threads', '{n}']\n[factor.n]\nlevels = [1]\n\
                 [metric.m]\nfrom = 'subject:/settle_least_ns'\n";
    assert!(whole.contains(text), "{text:?}");
    faults_of(&whole.replace(text, replacement))
}

#[test]
fn a_command_in_a_virtual_machine_has_no_load_and_metrics_of_its_own() {
    assert_eq!(of_a_guest("", ""), [""; 0]);
    assert_eq!(
        of_a_guest("{n}", "{threads}"),
        [
            "4:44: nothing fills the placeholder {threads}; there is 'n', 'port', 'host', 'root', 'work', 'drover', 'cert', 'key'; \
             {{threads}} stands for the text itself",
            "5:9: nothing uses the factor 'n': write {n} in a subject, the load or the wire",
        ]
    );
    assert_eq!(
        of_a_guest("subject:", "load:"),
        [
            "3:10: nothing is taken from what 'a' prints: write a table [metric.NAME] with from = \"subject:/KEY\""
        ]
    );
    assert_eq!(
        of_a_guest("[metric.m]", "[load.tokens]\nactive = 1\n[metric.m]"),
        ["3:10: the load 'tokens' drives subjects with the keys 'pipes', and 'a' is none"]
    );
    assert_eq!(
        of_a_guest("guest = [", "serve = ["),
        [
            "3:10: 'a' needs a load, [load.http], [load.connects], [load.tokens] or [load.command]: only \
             subjects with the key 'guest' have none"
        ]
    );
}
