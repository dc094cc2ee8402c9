//! The stages of each request, from the trace of Drover's own server (`serve --trace`; docs/trace.md describes the
//! file).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::failure::Failure;
use crate::spec::metric::Stage;
use crate::trace::FORMAT;

/// A trace: the times of each request that began in the window, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageTrace {
    columns: BTreeMap<String, Vec<f64>>,
    requests: usize,
}

impl StageTrace {
    /// Reads the requests that began at `from` (seconds since 1970) or later.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the file is no trace.
    pub fn read(path: &Path, from: f64) -> Result<StageTrace, Failure> {
        let failed = |why: String| Failure::failed(format!("the trace {}: {why}", path.display()));
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        StageTrace::parse(BufReader::new(file), from).map_err(failed)
    }

    fn parse(lines: impl BufRead, from: f64) -> Result<StageTrace, String> {
        let mut lines = lines.lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let started =
            first.strip_prefix("# ").and_then(|it| it.strip_prefix(FORMAT)).and_then(|words| {
                let started = words.split(' ').find_map(|word| word.strip_prefix("started="))?;
                started.parse::<f64>().ok()
            });
        let started = started.ok_or_else(|| format!("it does not begin like a {FORMAT}"))?;
        let header = lines.next().ok_or("it has no line of columns")?;
        let names: Vec<&str> = header.split(',').collect();
        let at = |name: &str| {
            let place = names.iter().position(|column| *column == name);
            place.ok_or_else(|| format!("it has no column {name}"))
        };
        let start = at("start_us")?;
        let mut trace = StageTrace::default();
        let wanted = Stage::ALL.map(Stage::column).into_iter().chain(["reads"]);
        let wanted: Vec<(&str, usize)> =
            wanted.map(|name| Ok((name, at(name)?))).collect::<Result<_, String>>()?;
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
            let begins = number(start).map(|us| started + us / 1e6);
            // The last line may be incomplete.
            if fields.len() != names.len() || begins.is_none_or(|begins| begins < from) {
                continue;
            }
            trace.requests += 1;
            for (name, at) in &wanted {
                let column = trace.columns.entry((*name).to_string()).or_default();
                column.push(number(*at).unwrap_or(0.0));
            }
        }
        Ok(trace)
    }

    fn of(&self, name: &str) -> &[f64] {
        self.columns.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The metrics of stages, in milliseconds; none without requests.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, f64> {
        let sum = |name: &str| self.of(name).iter().sum::<f64>();
        let (requests, reads) = (self.requests as f64, sum("reads"));
        let mut values = BTreeMap::new();
        let mut set = |name: &str, us: f64| {
            if us.is_finite() {
                values.insert(name.to_string(), us / 1e3);
            }
        };
        set("stat-time", sum("stat_us") / requests);
        set("queue-time", sum("queue_us") / reads);
        set("read-time", sum("read_us") / reads);
        set("return-time", sum("return_us") / reads);
        set("write-time", sum("write_us") / requests);
        let mut longest = self.of("longest_us").to_vec();
        longest.sort_by(f64::total_cmp);
        let at = (0.99 * longest.len() as f64).ceil() as usize;
        if let Some(us) = at.checked_sub(1).and_then(|at| longest.get(at)) {
            set("longest-read", *us);
        }
        values
    }

    /// The percentage of requests that spent more than `above` seconds in a stage; `None` without requests.
    #[must_use]
    pub fn share(&self, stage: Stage, above: f64) -> Option<f64> {
        let times = self.of(stage.column());
        let late = times.iter().filter(|us| **us > 1e6 * above).count();
        (!times.is_empty()).then(|| 100.0 * late as f64 / times.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "# drover.trace/1 started=1000.5 dispatch=epoll workers=1\n\
        start_us,stat_us,queue_us,read_us,return_us,write_us,total_us,longest_us,reads,status,bytes,end,worker,connection,backend\n\
        100,0,1,1,1,1,4,3,1,200,9,sent,0,1,threads\n\
        600000,1000,4000,2000,10,3000,10010,5000,2,200,9,sent,0,1,threads\n\
        700000,3000,8000,2000,10,5000,18010,9000,2,200,9,sent,0,2,threads\n\
        8000";

    #[test]
    fn requests_of_the_window_are_summed_up_by_stage() {
        let trace = StageTrace::parse(TRACE.as_bytes(), 1001.0).unwrap();
        let values = trace.values();
        assert_eq!(values["stat-time"], 2.0);
        assert_eq!(values["queue-time"], 3.0);
        assert_eq!(values["read-time"], 1.0);
        assert_eq!(values["write-time"], 4.0);
        assert_eq!(values["longest-read"], 9.0);
        assert_eq!(trace.share(Stage::Longest, 0.006), Some(50.0));
        assert_eq!(StageTrace::parse(TRACE.as_bytes(), 2000.0).unwrap().values(), BTreeMap::new());
    }

    #[test]
    fn another_file_is_refused() {
        assert!(
            StageTrace::parse("hello\n".as_bytes(), 0.0).unwrap_err().contains("drover.trace/1")
        );
    }
}
