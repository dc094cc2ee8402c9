//! Estimates how long an experiment takes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::connections;
use crate::failure::Failure;
use crate::model::Level;
use crate::spec::load::LoadSpec;
use crate::spec::phases::Until;
use crate::spec::{Experiment, Preset};

/// How long starting and stopping a server and a generator takes, in seconds.
const START_S: f64 = 0.15;

/// How many connections are opened, accepted, used once and closed per second.
const CONNECTS: f64 = 8000.0;

/// The longest warm-up, if the experiment sets none.
const WARM_UP: Duration = Duration::from_secs(3);

/// The window, if the experiment sets none.
const WINDOW: Duration = Duration::from_secs(1);

/// The phases of a run in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPhases {
    /// What ends the warm-up.
    pub until: Until,
    /// The longest warm-up.
    pub warm_up: Duration,
    /// The shortest window.
    pub at_least: Duration,
    /// The longest window.
    pub at_most: Duration,
    /// How many events the window has at least.
    pub events: Option<u64>,
    /// Whether requests that are under way at the end of the window are waited for and counted.
    pub drain: bool,
    /// The length of a turn, where servers take turns.
    pub turn: Option<Duration>,
}

impl RunPhases {
    /// The phases of an experiment in a preset, for the cell with these levels.
    ///
    /// # Errors
    /// [`Failure::Failed`] with what is wrong with a setting.
    pub fn of(
        experiment: &Experiment,
        preset: &Preset,
        levels: &BTreeMap<String, Level>,
    ) -> Result<RunPhases, Failure> {
        let phases = &experiment.phases;
        let time = |of_preset: Option<&crate::spec::setting::TimeSetting>,
                    own: Option<&crate::spec::setting::TimeSetting>,
                    default: Duration| {
            let chosen =
                of_preset.or(own).map(|time| time.resolve(levels).map_err(Failure::failed));
            chosen.transpose().map(|time| time.unwrap_or(default))
        };
        let measure = &phases.measure;
        let at_least = time(preset.window.as_ref(), measure.at_least.as_ref(), WINDOW)?;
        let at_most = time(None, measure.at_most.as_ref(), 10 * at_least)?;
        let events = preset.events.as_ref().or(measure.events.as_ref());
        let events = events.map(|events| events.resolve(levels).map_err(Failure::failed));
        Ok(RunPhases {
            until: phases.warmup.until,
            warm_up: time(preset.warmup.as_ref(), phases.warmup.at_most.as_ref(), WARM_UP)?,
            at_least,
            at_most: at_most.max(at_least),
            events: events.transpose()?.filter(|events| *events > 0),
            drain: phases.drain,
            turn: phases.turn.as_ref().map(|turn| time(Some(turn), None, WINDOW)).transpose()?,
        })
    }

    /// How long a run takes at least, in seconds: its window, unless a number of requests ends the window.
    #[must_use]
    pub fn least_s(&self, load: &LoadSpec) -> f64 {
        let is_counted = load.http.as_ref().is_some_and(|http| http.requests.is_some());
        if is_counted { 0.0 } else { self.at_least.as_secs_f64() }
    }

    /// How long a run may take, in seconds.
    #[must_use]
    pub fn estimate_s(&self, load: &LoadSpec, levels: &BTreeMap<String, Level>) -> f64 {
        let http = load.http.as_ref();
        let rate = http.and_then(|http| {
            let rate = http.rate.as_ref().or(http.connection_rate.as_ref())?;
            let level = crate::spec::setting::level_of(levels);
            rate.fill(level).ok()?.parse::<f64>().ok().filter(|rate| *rate > 0.0)
        });
        let window = match (self.events, rate) {
            (Some(events), Some(rate)) if rate > 0.0 => {
                let wanted = events as f64 / rate;
                wanted.clamp(self.at_least.as_secs_f64(), self.at_most.as_secs_f64())
            }
            _ => self.at_least.as_secs_f64(),
        };
        // A steady subject is recognised after two stretches.
        let warm_up = match self.until {
            Until::Steady if http.is_some() => (self.warm_up.as_secs_f64() / 2.0).min(1.0),
            // A set of pipes always uses its whole warm-up.
            _ if load.tokens.is_some() => self.warm_up.as_secs_f64(),
            _ => 0.0,
        };
        // With a connection rate, connections are opened in the window.
        let opened = http.map_or(0, |http| match http.connection_rate.is_some() {
            true => http.idle.as_ref().and_then(|it| it.resolve(levels).ok()).unwrap_or(0),
            false => connections(http, levels).unwrap_or(0),
        });
        START_S + warm_up + window + opened as f64 / CONNECTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_win_over_phases_and_levels_fill_both() {
        let text = "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\nserve = []\n\
                    [factor.n]\nlevels = [100]\n[load.http]\nrate = '{n}'\n[phases]\n\
                    measure = { at_least = '2s', events = 1000 }\nwarmup = { until = 'nothing' }\n\
                    [presets.quick]\nwindow = '500ms'\n";
        let experiment: Experiment = toml::from_str(text).unwrap();
        let levels = BTreeMap::from([("n".to_string(), Level::Number(100.0))]);
        let phases = RunPhases::of(&experiment, &experiment.presets["quick"], &levels).unwrap();
        assert_eq!(phases.at_least, Duration::from_millis(500));
        assert_eq!(phases.at_most, Duration::from_secs(5));
        assert_eq!((phases.events, phases.until), (Some(1000), Until::Nothing));
        // A thousand events at 100/s would take ten seconds, and the window is at most five seconds long.
        let estimate = phases.estimate_s(&experiment.load, &levels);
        assert!((5.0..6.0).contains(&estimate), "{estimate}");
        assert_eq!(phases.least_s(&experiment.load), 0.5);
    }
}
