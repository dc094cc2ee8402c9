//! Two sessions side by side: what is printed and written, and what the exit status says.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{assert_usage_error, output, text, write_experiment};

/// Resident memory is neither limited by the load nor left out of short windows.
const FIGURE: &str = "[[figure]]\nid = \"1\"\nmetric = \"memory\"\n";

/// Runs the experiment `mine` as a session of its own in the folder `out`.
fn run(folder: &Path, out: &str) {
    let output = output(folder, &["run", "mine.toml", "--out", out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn two_sessions_are_compared_and_conditions_decide_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "mine", FIGURE);
    run(folder.path(), "before");
    run(folder.path(), "after");
    let compared = |more: &[&str]| {
        output(folder.path(), &[&["compare", "before", "after", "--all"][..], more].concat())
    };
    what_is_printed_and_written(folder.path(), &compared(&["--json", "ratios.json"]).stdout);
    let kept = compared(&["--fail-if", "memory < 0.001", "--fail-if", "memory > 1000"]);
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    let broken = compared(&["--fail-if", "memory < 0.001", "--fail-if", "memory > 0.001"]);
    let stderr = text(&broken.stderr);
    assert_eq!(broken.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("drover: --fail-if 'memory > 0.001': mine: "), "{stderr}");
    for cell in ["mine: poll, connections 2: ", "mine: select, connections 2: "] {
        let ratio = stderr.split(cell).nth(1).unwrap_or_else(|| panic!("no {cell} in {stderr}"));
        let value = ratio.split(' ').next().unwrap().parse::<f64>();
        assert!(value.is_ok_and(|value| value > 0.001), "{stderr}");
        assert!(ratio.contains(" … "), "{stderr}");
    }
    assert!(text(&broken.stdout).contains("2 cells"), "the table is printed all the same");
    let narrowed = compared(&["--metric", "memory"]);
    assert!(narrowed.status.success(), "{}", text(&narrowed.stderr));
    assert!(text(&narrowed.stdout).starts_with("BASE   before/"), "{}", text(&narrowed.stdout));
    assert!(!text(&narrowed.stdout).contains("response-rate"), "{}", text(&narrowed.stdout));
    let unknown = compared(&["--fail-if", "memori < 0.95"]);
    assert_usage_error(&unknown, &["--fail-if", "'memori'", "there are: memory"]);
    let unknown = compared(&["--metric", "memori"]);
    assert_usage_error(&unknown, &["--metric", "'memori'", "memory, response-rate"]);
}

fn what_is_printed_and_written(folder: &Path, stdout: &[u8]) {
    let stdout = text(stdout);
    for expected in [
        "BASE   before/",
        "OTHER  after/",
        "mine: memory (MB, lower is better)\n",
        "mine: response-rate (1/s, higher is better)\n",
        "  poll, connections 2 ",
        "4 comparisons in 2 cells: ",
        "Same kernel, program, processors and experiments.\n",
    ] {
        assert!(stdout.contains(expected), "no {expected:?} in\n{stdout}");
    }
    let data = fs::read_to_string(folder.join("ratios.json")).unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["schema"], "drover.compare/1");
    let ratios = data["others"][0]["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 4, "{data}");
    for ratio in ratios.iter().filter(|ratio| ratio["metric"] == "memory") {
        let (value, low) = (ratio["ratio"]["value"].as_f64(), ratio["ratio"]["low"].as_f64());
        assert!(value.zip(low).is_some_and(|(value, low)| low <= value && low > 0.0), "{ratio}");
        let rounds = [&ratio["base_rounds"], &ratio["other_rounds"]].map(Value::as_u64);
        assert_eq!(rounds, [Some(6); 2], "{ratio}");
    }
}

#[test]
fn what_is_no_session_is_named_and_servers_have_another_command() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| output(folder.path(), args);
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert_usage_error(&refused(&["compare", "empty", "nginx"]), &["'empty'", "lab versus"]);
    assert_usage_error(&refused(&["compare", "nginx", "drover"]), &["'nginx'", "lab versus"]);
    assert_usage_error(&refused(&["compare", "empty"]), &["OTHER"]);
    let malformed = ["compare", "empty", "empty", "--fail-if", "memory = 1"];
    assert_usage_error(&refused(&malformed), &["--fail-if", "'response-rate < 0.95'"]);
}

#[test]
fn sessions_without_a_common_experiment_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["one", "two"] {
        write_experiment(folder.path(), id, "");
        let file = format!("{id}.toml");
        let output = output(folder.path(), &["run", &file, "--repeats", "1", "--out", id]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = output(folder.path(), &["compare", "one", "two"]);
    assert_usage_error(&output, &["no experiment in common"]);
    // One round is no interval.
    let output = super::output(folder.path(), &["compare", "one", "one"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("2 not comparable"), "{}", text(&output.stdout));
    let args = ["compare", "one", "one", "--fail-if", "response-rate < 0.95"];
    assert_usage_error(
        &super::output(folder.path(), &args),
        &["'response-rate'", "there are: none"],
    );
}
