//! Drover's own server with the flags of a subject.

use super::{HttpAddress, Running, START, Scene, Subject, Values};
use crate::failure::Failure;
use crate::old_names::is_flag;
use crate::process::Child;
use crate::spec::{self, Experiment};
use crate::wire::WireEnd;

/// Drover's own server.
#[derive(Debug)]
pub struct Serve<'a> {
    /// The experiment, which may have flags for every subject.
    pub experiment: &'a Experiment,
    /// The subject's description.
    pub subject: &'a spec::SubjectSpec,
    /// The flags that the subject is about.
    pub flags: &'a [String],
}

impl Serve<'_> {
    /// The server's command: the flags of the experiment and of the subject, and what a measurement needs besides.
    fn words(&self, scene: &Scene<'_>, values: &Values<'_>) -> Result<Vec<String>, Failure> {
        let mut words = vec![scene.drover.display().to_string(), "serve".to_string()];
        let own = values.fill_all(self.flags)?;
        words.extend(without(&values.fill_all(&self.experiment.serve)?, &own));
        words.extend(own);
        let given = words.clone();
        let mut unless_given = |flag: &str, value: &str| {
            let with_value = format!("{flag}=");
            if !given.iter().any(|word| word == flag || word.starts_with(&with_value)) {
                words.extend([flag.to_string(), value.to_string()]);
            }
        };
        unless_given("--workers", "1");
        // A connection may be idle for longer than a web server would allow, even before its first request.
        unless_given("--idle-timeout", "0");
        unless_given("--defer-accept", "off");
        // `auto` must not depend on results of `drover tune` on this machine.
        unless_given("--tuned", "off");
        unless_given("--listen", &format!("{}:0", scene.wire.address()));
        if let Some(tls) = scene.tls {
            unless_given("--tls-cert", &tls.certificate().display().to_string());
            unless_given("--tls-key", &tls.key().display().to_string());
        }
        if scene.is_http2 {
            unless_given("--http2", "on");
        }
        if let Some(trace) = scene.trace {
            unless_given("--trace", &trace.display().to_string());
        }
        unless_given("--counters", &scene.counters.display().to_string());
        let is_given = |word: &String| word == "--count-events";
        if scene.counts_events && !given.iter().any(is_given) {
            words.push("--count-events".to_owned());
        }
        if let Some(root) = scene.root.map(|root| root.display().to_string()) {
            // With --response-size, the server has no root.
            let is_told = |word: &String| is_flag(word, "--response-size") || *word == root;
            if !given.iter().any(is_told) {
                words.push(root);
            }
        }
        Ok(words)
    }
}

impl Subject for Serve<'_> {
    fn start(&self, scene: &Scene<'_>) -> Result<Running, Failure> {
        let values = scene.prepare(self.subject, None)?;
        let words = self.words(scene, &values)?;
        let launch = scene.launch(self.subject, &words, &values)?;
        let within = match self.subject.ready.as_ref().and_then(|ready| ready.within.as_ref()) {
            Some(within) => within.resolve(scene.levels).map_err(Failure::failed)?,
            None => START,
        };
        let there = scene.wire.enter(WireEnd::Subject)?;
        let mut process = Child::start(launch)?;
        let address = process.expect_line("its address", within, |line| {
            HttpAddress::parse(line.strip_prefix("listening on ")?)
        })?;
        if let Some(ready) = &self.subject.ready {
            super::wait_until_ready(&mut process, address, Some(ready), within)?;
        }
        drop(there);
        Ok(Running { process, address: Some(address) })
    }
}

/// The flags of all subjects, without those flags (and their values) that a subject sets itself.
fn without(common: &[String], own: &[String]) -> Vec<String> {
    let name = |word: &str| -> Option<String> {
        word.starts_with("--").then(|| word.split('=').next().unwrap_or(word).to_string())
    };
    let replaced: Vec<String> = own.iter().filter_map(|word| name(word)).collect();
    let mut keeps = true;
    let mut kept = Vec::new();
    for word in common {
        if let Some(name) = name(word) {
            keeps = !replaced.contains(&name);
        }
        if keeps {
            kept.push(word.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_s_own_flags_replace_those_of_all() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let common = words("--workers 1 --accept-batch 1 --cache=off --quiet");
        assert_eq!(
            without(&common, &words("--accept-batch all")),
            words("--workers 1 --cache=off --quiet")
        );
        assert_eq!(
            without(&common, &words("--cache on")),
            words("--workers 1 --accept-batch 1 --quiet")
        );
        assert_eq!(without(&common, &[]), common);
    }
}
