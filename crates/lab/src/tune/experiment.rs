//! The experiment of a contest, as the text of an experiment file: its candidates at a moderate rate and at
//! saturation.

use std::fmt::Write;

use super::knob::{Contest, TuneContext};
use super::reading::{COST, SPEED};
use super::{MODERATE, PRESET, SATURATION};
use crate::digits::two_digits;
use crate::spec::experiment::SCHEMA;
use crate::spec::factor::CASE;
use crate::spec::made::{array, literal, quoted, read_made};
use crate::spec::{self, Experiment, Faults};

/// The longest warm-up. A steady server needs a quarter of it. By then the server has answered, at the moderate rate,
/// some 1000 requests, and has opened its files.
const WARM_UP: &str = "600ms";

/// The moderate rate, as a share of the saturation rate of one worker of the default configuration.
const SHARE: f64 = 0.3;

/// The moderate rate for a rate of responses at saturation, both per second.
#[must_use]
pub fn moderate(saturation: f64) -> f64 {
    two_digits(SHARE * saturation)
}

/// The experiment that compares the candidates of a contest, in windows of `window_s` seconds. With the rate 0, it
/// has only saturation.
///
/// # Errors
/// Faults of the generated text: a fault of this program.
pub fn experiment(
    contest: &Contest,
    scene: &TuneContext,
    rate: f64,
    window_s: f64,
) -> Result<Experiment, Faults> {
    let knob = contest.knob.name();
    let mut text = format!(
        "schema = \"{SCHEMA}\"\nid = \"tune-{knob}\"\ntitle = \"Which --{knob}?\"\n\
         source = \"files of a user\"\nserve = {}\n",
        array(&contest.flags)
    );
    for name in &contest.names {
        let words = [format!("--{knob}={name}"), literal(&scene.root)];
        let (name, cpus) = (quoted(name), contest.processors);
        let _ = writeln!(text, "[subject.{name}]\nserve = {}\ncpus = {cpus}", array(&words));
    }
    let threads = scene.processors.saturating_sub(contest.processors).max(1) as u64;
    let _ = write!(
        text,
        "[factor.rate]\nunit = \"requests/s\"\n[load.http]\nrate = \"{{rate}}\"\nconnections = {}\n\
         threads = {}\ntimeout = \"5s\"\nurls = {}\n",
        scene.connections,
        threads.min(scene.connections),
        quoted(&literal(&scene.urls)),
    );
    if let Some(order) = scene.order {
        let _ = writeln!(text, "order = \"{order}\"");
    }
    if let Some(calls) = contest.calls {
        let _ = writeln!(text, "calls = {calls}");
    }
    if rate > 0.0 {
        let _ = writeln!(text, "[[{CASE}]]\nname = \"{MODERATE}\"\nrate = {rate}");
    }
    let window = format!("{}us", (window_s * 1e6).round());
    let _ = write!(
        text,
        "[[{CASE}]]\nname = \"{SATURATION}\"\nrate = 0\n[phases]\nwarmup = {{ at_most = \"{WARM_UP}\" }}\n\
         measure = {{ at_most = \"{window}\" }}\n[presets.{PRESET}]\nwindow = \"{window}\"\n"
    );
    for (number, metric) in (1..).zip([COST, SPEED]) {
        let title = spec::metric::built_in(metric).map_or(metric, |metric| metric.title);
        let _ = writeln!(
            text,
            "[[figure]]\nid = \"Table {number}\"\ntitle = \"{title}\"\nmetric = \"{metric}\""
        );
    }
    read_made(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Level;
    use crate::tune::{Knob, TakenFlags, contest};

    #[test]
    fn candidates_serve_the_user_s_folder_at_both_loads() {
        let scene = TuneContext {
            processors: 4,
            root: "/srv/{port}/a b".to_owned(),
            urls: "/tmp/{x}/urls".to_owned(),
            order: Some("random"),
            connections: 2,
            bytes: None,
        };
        let contest = contest(Knob::Files, &scene, &TakenFlags::default()).unwrap();
        let made = experiment(&contest, &scene, moderate(12_345.0), 0.25).unwrap();
        assert_eq!(made.serve, ["--workers=1"]);
        let serve = made.subject["sendfile"].serve.as_ref().unwrap();
        assert_eq!(serve[..], ["--files=sendfile", "/srv/{{port}}/a b"]);
        let http = made.load.http.as_ref().unwrap();
        assert_eq!(http.urls.as_deref(), Some("/tmp/{{x}}/urls"));
        assert_eq!(http.threads.as_ref().unwrap().resolve(&Default::default()), Ok(2));
        let cells = made.cells(&made.presets[PRESET]);
        assert_eq!(cells.len(), 2 * contest.names.len());
        assert_eq!(cells[0].levels["rate"], Level::Number(3700.0));
        let one = experiment(&contest, &scene, 0.0, 0.25).unwrap();
        assert_eq!(one.cells(&one.presets[PRESET]).len(), contest.names.len());
    }
}
