//! Experiments over TLS: which cells they are, and what is refused.

use drover_lab::spec::{Experiment, Faults, Preset};

use crate::Memory;

fn read(top: &str, rest: &str) -> Result<Experiment, Faults> {
    let text = format!(
        "schema = \"drover.experiment/2\"\nid = \"x\"\n{top}\n[subject.a]\nserve = []\n[load.http]\n{rest}\n"
    );
    Memory::new([("f.toml", &*text)]).read("f.toml")
}

#[test]
fn a_factor_says_which_cells_are_over_tls() {
    let factor = "tls_resume = \"{resume}\"\n[factor.tls]\nlevels = [0, 1]\n[factor.resume]\nlevels = [\"off\", 3]";
    let experiment = read("tls = \"{tls}\"", factor).unwrap();
    let cells = experiment.cells(&Preset::default());
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let spoken = experiment.spoken(&cell.levels).unwrap();
        let is_tls = spoken.tls;
        assert_eq!(is_tls, cell.levels["tls"].number() == Some(1.0));
        let level = |name: &str| cell.levels.get(name).map(ToString::to_string);
        let flags = experiment.load.http.as_ref().unwrap().flags(spoken, level).unwrap();
        let resume = cell.levels["resume"].to_string();
        assert_eq!(flags, if is_tls { vec!["--tls-resume", &resume] } else { Vec::new() });
    }
    for (top, expected) in [("", false), ("tls = false", false), ("tls = true", true)] {
        assert_eq!(read(top, "").unwrap().is_tls(&Default::default()), Ok(expected), "{top}");
    }
}

#[test]
fn what_differs_over_tls_replaces_a_subject_s_own_keys() {
    let text = "schema = 'drover.experiment/2'\nid = 'x'\ntls = true\n\
                [subject.a]\ncommand = ['./srv', '{conf}', '{port}']\nfiles.conf = 'plain'\nfiles.more = 'same'\n\
                tls.files.conf = '{cert} {key} {own}'\ntls.files.own = ''\n\
                [subject.nginx]\npeer = 'nginx'\n[load.http]\n";
    let experiment = Memory::new([("f.toml", text)]).read("f.toml").unwrap();
    let over_tls = experiment.subject["a"].over(true, false);
    assert_eq!(over_tls.command, experiment.subject["a"].command);
    assert_eq!(
        (&*over_tls.files["conf"], &*over_tls.files["more"]),
        ("{cert} {key} {own}", "same")
    );
    let nginx = experiment.subject["nginx"].over(true, false);
    assert!(nginx.files.values().any(|text| text.contains("ssl_certificate {cert}")), "{nginx:?}");
    assert!(!nginx.files.values().any(|text| text.contains("http2")), "{nginx:?}");
    let over_http2 = experiment.subject["nginx"].over(true, true);
    assert!(over_http2.files["listen"].contains("ssl http2"), "{over_http2:?}");
}

#[test]
fn streams_are_those_of_cells_over_http2() {
    let factor = "streams = 4\n[factor.http2]\nlevels = [0, 1]";
    let experiment = read("http2 = \"{http2}\"", factor).unwrap();
    for cell in experiment.cells(&Preset::default()) {
        let spoken = experiment.spoken(&cell.levels).unwrap();
        let flags = experiment.load.http.as_ref().unwrap().flags(spoken, |_| None).unwrap();
        let expected = if spoken.http2 { &["--streams", "4", "--h2c"][..] } else { &[] };
        assert_eq!(flags, expected);
    }
    let told = read("http2 = true", "pipeline = 4").unwrap_err().to_string();
    assert!(told.contains("HTTP/2 has no pipeline"), "{told}");
    let told = read("", "streams = 4").unwrap_err().to_string();
    assert!(told.contains("nothing speaks HTTP/2 here"), "{told}");
}

#[test]
fn what_says_nothing_of_tls_is_refused() {
    for (top, rest, expected) in [
        ("tls = 2", "", "f.toml:3:7: tls is at most 1, not 2"),
        ("tls = \"yes\"", "", "f.toml:3:7: tls: 'yes' is neither 1 nor 0; write true, false, or"),
        ("tls = 0.5", "", "f.toml:3:7: tls is true, false, or \"{factor}\", not a number"),
        ("tls = \"{tsl}\"", "", "f.toml:3:7: nothing fills the placeholder {tsl}"),
        ("", "[phases]\nturn_over = [\"tsl\"]", "f.toml:8:14: no factor is called 'tsl'"),
        (
            "tls = \"{tls}\"",
            "[factor.tls]\nlevels = [0, 1]\n[phases]\nturn_over = [\"tls\"]\nmeasure = { at_least = \"{tls}s\" }",
            "f.toml:11:24: nothing here can depend on 'tls', whose levels take turns",
        ),
        ("", "tls_resume = \"off\"", "f.toml:7:1: nothing speaks TLS here: write tls = true"),
    ] {
        let told = read(top, rest).unwrap_err().to_string();
        assert!(told.starts_with(expected), "{told}");
    }
}
