//! The experiment of an axis, as the text of an experiment file: its candidates at a low rate and at saturation.

use std::fmt::Write;

use super::candidates::Candidates;
use super::fit::RunExtent;
use super::question::{Lifetime, Question, ResponseKind, ScaledQuestion};
use super::{AUTO, LOW_RATE, PRESET, SATURATION};
use crate::spec::experiment::SCHEMA;
use crate::spec::factor::CASE;
use crate::spec::made::{array, literal, quoted, read_made};
use crate::spec::{self, Experiment, Faults};

/// The longest warm-up. Servers that differ only in how they wait are steady soon.
const WARM_UP: &str = "300ms";

/// How many responses a window needs for percentiles.
const EVENTS: u32 = 200;

/// The metrics of the tables.
const METRICS: [&str; 4] = ["cpu-per-response", "response-rate", "latency-median", "latency-p99"];

const METHOD: &str = "The servers differ in one flag. Each is measured at a low rate, which all of them can \
                      serve, and at saturation, where each active connection asks again as soon as it has its \
                      response; the other connections are open and idle. A round has every server at both \
                      loads, in another order each time.";

/// A question, and everything that is needed to measure its answer.
#[derive(Clone, Debug)]
pub struct DecideRequest<'r> {
    /// What is asked.
    pub question: &'r Question,
    /// The question in the size in which this machine can measure it.
    pub scene: &'r ScaledQuestion,
    /// A file with the paths of the files, a line each, if the question is about files.
    pub urls: Option<&'r str>,
    /// The loads, in requests per second; 0 is saturation.
    pub rates: &'r [f64],
    /// How many rounds, and how long the windows are.
    pub extent: RunExtent,
}

impl DecideRequest<'_> {
    /// The experiment that compares the candidates.
    ///
    /// # Errors
    /// Faults of the generated text: a fault of this program.
    pub fn experiment(&self, candidates: &Candidates) -> Result<Experiment, Faults> {
        let mut text = self.head(candidates);
        self.write_subjects(&mut text, candidates);
        self.write_load(&mut text);
        let _ = write!(
            text,
            "[phases]\nwarmup = {{ at_most = \"{WARM_UP}\" }}\n\
             measure = {{ at_most = \"{window}\" }}\n\
             [presets.{PRESET}]\nrounds = {}\nwindow = \"{window}\"\nevents = {EVENTS}\n",
            self.extent.rounds,
            window = format_args!("{}us", (self.extent.window_s * 1e6).round()),
        );
        for (number, metric) in (1..).zip(METRICS) {
            let title = spec::metric::built_in(metric).map_or(metric, |metric| metric.title);
            let _ = writeln!(
                text,
                "[[figure]]\nid = \"Table {number}\"\ntitle = \"{title}\"\nmetric = \"{metric}\""
            );
        }
        read_made(&text)
    }

    fn head(&self, candidates: &Candidates) -> String {
        let axis = candidates.axis;
        let question = format!("{} For {}.", axis.question(), self.question.in_words());
        let mut serve = vec!["--workers".to_owned(), self.question.workers.to_string()];
        if let ResponseKind::Bytes(bytes) = self.question.response {
            serve.extend(["--response-size".to_owned(), bytes.to_string()]);
        }
        serve.extend(candidates.flags.iter().cloned());
        format!(
            "schema = \"{SCHEMA}\"\nid = \"{}\"\ntitle = {}\nsource = \"a question of your own\"\n\
             question = {}\nmethod = {}\ndifferences = {}\nserve = {}\n",
            axis.id(),
            quoted(axis.question()),
            quoted(&question),
            quoted(METHOD),
            array(&self.scene.gaps),
            array(&serve)
        )
    }

    fn write_subjects(&self, text: &mut String, candidates: &Candidates) {
        let root = match &self.question.response {
            ResponseKind::Bytes(_) => None,
            ResponseKind::Files(files) => Some(literal(&files.root.display().to_string())),
        };
        for name in &candidates.names {
            let words = [Some(candidates.axis.flag()), Some(name.as_str()), root.as_deref()];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            let _ = writeln!(
                text,
                "[subject.{}]\nserve = {}\ncpus = {}",
                quoted(name),
                array(&words),
                self.scene.processors
            );
            if candidates.auto.as_ref() == Some(name) {
                let _ = writeln!(text, "title = \"{AUTO}\"");
            }
        }
    }

    fn write_load(&self, text: &mut String) {
        let scene = self.scene;
        let _ = write!(
            text,
            "[factor.rate]\nunit = \"requests/s\"\n[load.http]\nrate = \"{{rate}}\"\nconnections = {}\n\
             idle = {}\nthreads = {}\ntimeout = \"5s\"\n",
            scene.active, scene.idle, scene.load_threads
        );
        if self.question.lifetime == Lifetime::Short {
            text.push_str("calls = 1\n");
        }
        if let Some(source) = scene.source {
            let _ = writeln!(text, "source = \"{source}\"");
        }
        match (&self.question.response, self.urls) {
            (ResponseKind::Bytes(bytes), _) => drop(writeln!(text, "expect_size = {bytes}")),
            (ResponseKind::Files(_), urls) => {
                let urls = quoted(&literal(urls.unwrap_or_default()));
                let _ = writeln!(text, "urls = {urls}\norder = \"random\"");
            }
        }
        for rate in self.rates {
            let name = if *rate > 0.0 { LOW_RATE } else { SATURATION };
            let _ = writeln!(text, "[[{CASE}]]\nname = \"{name}\"\nrate = {rate}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decide::candidates::Axis;
    use crate::model::Level;
    use crate::site::SampledFiles;

    const SCENE: ScaledQuestion = ScaledQuestion {
        active: 50,
        idle: 950,
        processors: 2,
        load_threads: 2,
        source: None,
        gaps: Vec::new(),
    };

    const EXTENT: RunExtent = RunExtent { rounds: 7, window_s: 0.25 };

    fn candidates(axis: Axis, names: &[&str], flags: &[&str]) -> Candidates {
        Candidates {
            axis,
            flags: flags.iter().map(ToString::to_string).collect(),
            names: names.iter().map(ToString::to_string).collect(),
            auto: Some(names[0].to_owned()),
        }
    }

    #[test]
    fn each_candidate_is_measured_at_both_loads_with_the_question_s_shape() {
        let question = Question {
            connections: 1000,
            active: 0.05,
            response: ResponseKind::Bytes(4096),
            workers: 2,
            lifetime: Lifetime::Short,
        };
        let gaps = vec!["This machine is \"small\".".to_owned()];
        let scene = ScaledQuestion { source: Some("127.77.0.0/24"), gaps: gaps.clone(), ..SCENE };
        let request = DecideRequest {
            question: &question,
            scene: &scene,
            urls: None,
            rates: &[1700.0, 0.0],
            extent: EXTENT,
        };
        let experiment =
            request.experiment(&candidates(Axis::Dispatch, &["epoll", "poll"], &[])).unwrap();
        assert_eq!((experiment.id.as_str(), &experiment.differences), ("decide-dispatch", &gaps));
        let preset = &experiment.presets[PRESET];
        assert_eq!((preset.rounds(), experiment.cells(preset).len()), (7, 4));
        assert_eq!(experiment.serve, ["--workers", "2", "--response-size", "4096"]);
        let subject = &experiment.subject["epoll"];
        assert_eq!(subject.serve.as_deref().unwrap(), ["--dispatch", "epoll"]);
        assert_eq!(subject.cpus.as_ref().unwrap().resolve(&BTreeMap::new()), Ok(2));
        assert_eq!(subject.title.as_deref(), Some(AUTO));
        let rates = BTreeMap::from([("rate".to_owned(), Level::Number(1700.0))]);
        let http = experiment.load.http.as_ref().unwrap();
        let flags = http
            .flags(Default::default(), |name| spec::setting::level_of(&rates)(name))
            .unwrap()
            .join(" ");
        for expected in [
            "--connections 50",
            "--idle 950",
            "--rate 1700",
            "--calls-per-connection 1",
            "--threads 2",
            "--source 127.77.0.0/24",
            "--expect-size 4096",
        ] {
            assert!(flags.contains(expected), "no {expected} in {flags}");
        }
    }

    #[test]
    fn files_are_served_from_where_they_are() {
        let files = SampledFiles {
            root: "/srv/{port}/a b".into(),
            files: vec![("/x".to_owned(), 9)],
            ..SampledFiles::default()
        };
        let question = Question {
            connections: 1000,
            active: 0.05,
            response: ResponseKind::Files(files),
            workers: 1,
            lifetime: Lifetime::Long,
        };
        let request = DecideRequest {
            question: &question,
            scene: &SCENE,
            urls: Some("/tmp/urls"),
            rates: &[0.0],
            extent: EXTENT,
        };
        let backends = candidates(Axis::Files, &["auto", "sendfile"], &["--cache", "off"]);
        let experiment = request.experiment(&backends).unwrap();
        assert_eq!(experiment.serve, ["--workers", "1", "--cache", "off"]);
        let words = experiment.subject["sendfile"].serve.as_deref().unwrap();
        assert_eq!(words, ["--files", "sendfile", "/srv/{{port}}/a b"]);
        assert_eq!(spec::setting::fill(&words[2], |_| None).unwrap(), "/srv/{port}/a b");
        let http = experiment.load.http.as_ref().unwrap();
        assert_eq!((http.urls.as_deref(), http.expect_size.as_ref()), (Some("/tmp/urls"), None));
        assert_eq!(experiment.cells(&experiment.presets[PRESET]).len(), 2);
    }
}
