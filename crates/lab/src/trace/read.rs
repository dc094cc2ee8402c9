//! Reads a server's trace (`serve --trace`) and sums it up by stage. docs/trace.md describes the file.

use std::io::BufRead;

use super::FORMAT;
use crate::spec::metric::Stage;

/// One response. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedResponse {
    /// When the request had arrived, in microseconds from the beginning of the trace.
    pub start_us: u64,
    /// How long each stage took, in microseconds, in the order of [`Stage::ALL`].
    stages_us: [u64; Stage::ALL.len()],
    /// How many reads of the file there were.
    pub reads: u64,
    /// The HTTP status.
    pub status: u16,
    /// The length of the response in bytes, head included.
    pub bytes: u64,
    /// Whether the whole response was sent.
    pub sent: bool,
    /// Which backend moved the body: its index in [`TraceFile::backends`].
    pub backend: usize,
}

impl TracedResponse {
    /// How long the stage took, in microseconds.
    #[must_use]
    pub fn stage_us(&self, stage: Stage) -> u64 {
        self.stages_us[stage as usize]
    }
}

/// The content of a trace file.
#[derive(Clone, Debug, Default)]
pub struct TraceFile {
    /// The line in which the server describes itself.
    pub about: String,
    /// The names of the backends, in the order of their first response.
    pub backends: Vec<String>,
    /// The responses; those of one worker are in the order of their ends.
    pub responses: Vec<TracedResponse>,
    /// Whether the last line of the file is incomplete.
    pub cut: bool,
}

/// The distribution of one stage, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The arithmetic mean.
    pub mean: f64,
    /// The values at [`Summary::PERCENTILES`], by nearest rank.
    pub percentiles: [f64; 4],
    /// The longest.
    pub max: f64,
}

impl Summary {
    /// The percentiles that a summary has.
    pub const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
}

impl TraceFile {
    /// Reads a trace.
    ///
    /// # Errors
    /// The text is no trace: the message says what is wrong, and in which line.
    pub fn read(mut source: impl BufRead) -> Result<TraceFile, String> {
        let mut line = String::new();
        let mut next = |line: &mut String| {
            line.clear();
            source.read_line(line).map_err(|error| error.to_string())
        };
        next(&mut line)?;
        let about = line.strip_prefix("# ").and_then(|line| line.strip_prefix(FORMAT));
        let about = about.ok_or_else(|| format!("it does not begin with '# {FORMAT}'"))?;
        let mut trace = TraceFile { about: about.trim().to_owned(), ..TraceFile::default() };
        next(&mut line)?;
        let columns = Columns::find(line.trim_end())?;
        for number in 3.. {
            if next(&mut line)? == 0 {
                break;
            }
            let Some(whole) = line.strip_suffix('\n') else {
                trace.cut = true;
                break;
            };
            let response = columns.response(whole, &mut trace.backends);
            let response = response.map_err(|why| format!("line {number}: '{whole}': {why}"))?;
            trace.responses.push(response);
        }
        Ok(trace)
    }

    /// How a stage is distributed over all responses; `None`: there are none.
    #[must_use]
    pub fn summary(&self, stage: Stage) -> Option<Summary> {
        let mut all: Vec<u64> =
            self.responses.iter().map(|response| response.stage_us(stage)).collect();
        all.sort_unstable();
        let max = seconds(*all.last()?);
        let rank = |percent: f64| (percent / 100.0 * all.len() as f64).ceil() as usize;
        let percentiles =
            Summary::PERCENTILES.map(|percent| seconds(all[rank(percent).max(1) - 1]));
        Some(Summary { mean: seconds(all.iter().sum()) / all.len() as f64, percentiles, max })
    }

    /// How many responses spent more than `limit_us` microseconds in the stage.
    #[must_use]
    pub fn past(&self, stage: Stage, limit_us: u64) -> usize {
        self.responses.iter().filter(|response| response.stage_us(stage) > limit_us).count()
    }

    /// How many responses were not sent as a whole.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.responses.iter().filter(|response| !response.sent).count()
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// The indices of the columns. A later version of the file may have more columns.
struct Columns {
    count: usize,
    start: usize,
    stages: [usize; Stage::ALL.len()],
    reads: usize,
    status: usize,
    bytes: usize,
    end: usize,
    backend: usize,
}

impl Columns {
    fn find(header: &str) -> Result<Columns, String> {
        let names: Vec<&str> = header.split(',').collect();
        let place = |name: &str| {
            let found = names.iter().position(|column| *column == name);
            found.ok_or_else(|| format!("line 2: there is no column '{name}'"))
        };
        let mut stages = [0; Stage::ALL.len()];
        for (at, stage) in stages.iter_mut().zip(Stage::ALL) {
            *at = place(stage.column())?;
        }
        Ok(Columns {
            count: names.len(),
            start: place("start_us")?,
            stages,
            reads: place("reads")?,
            status: place("status")?,
            bytes: place("bytes")?,
            end: place("end")?,
            backend: place("backend")?,
        })
    }

    fn response(&self, line: &str, backends: &mut Vec<String>) -> Result<TracedResponse, String> {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != self.count {
            return Err(format!("{} fields instead of {}", fields.len(), self.count));
        }
        let number = |at: usize| {
            let number: Result<u64, _> = fields[at].parse();
            number.map_err(|error| format!("field {}: {error}", at + 1))
        };
        let mut stages_us = [0; Stage::ALL.len()];
        for (stage, at) in stages_us.iter_mut().zip(self.stages) {
            *stage = number(at)?;
        }
        let name = fields[self.backend];
        let backend = backends.iter().position(|known| known == name).unwrap_or_else(|| {
            backends.push(name.to_owned());
            backends.len() - 1
        });
        Ok(TracedResponse {
            start_us: number(self.start)?,
            stages_us,
            reads: number(self.reads)?,
            status: u16::try_from(number(self.status)?)
                .map_err(|error| format!("the status: {error}"))?,
            bytes: number(self.bytes)?,
            sent: fields[self.end] == "sent",
            backend,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::COLUMNS;

    fn text(lines: &str) -> String {
        format!("# {FORMAT} started=1.5 files=auto\n{COLUMNS}\n{lines}")
    }

    #[test]
    fn what_was_written_is_read() {
        let lines = "10,1,2,3,4,5,15,9,2,200,1234,sent,0,1,threads\n\
                     20,0,0,0,0,7,7,0,0,404,50,gone,0,2,memory\n30,0,0";
        let trace = TraceFile::read(text(lines).as_bytes()).unwrap();
        assert_eq!(trace.about, "started=1.5 files=auto");
        assert_eq!(trace.backends, ["threads", "memory"]);
        assert!(trace.cut);
        assert_eq!(trace.responses.len(), 2);
        let response = &trace.responses[0];
        let stages = Stage::ALL.map(|stage| response.stage_us(stage));
        assert_eq!((response.start_us, stages), (10, [1, 2, 3, 4, 5, 15, 9]));
        assert_eq!(
            (response.reads, response.status, response.bytes, response.sent),
            (2, 200, 1234, true)
        );
        assert_eq!((trace.unsent(), trace.past(Stage::Total, 7)), (1, 1));
    }

    #[test]
    fn a_summary_is_by_nearest_rank() {
        let line = |us: u64| format!("0,0,0,0,0,{us},{us},0,0,200,1,sent,0,1,memory\n");
        let lines: String = (1..=200).rev().map(|ms| line(ms * 1000)).collect();
        let summary =
            TraceFile::read(text(&lines).as_bytes()).unwrap().summary(Stage::Total).unwrap();
        assert_eq!(summary.percentiles, [0.1, 0.18, 0.198, 0.2]);
        assert_eq!((summary.max, (summary.mean * 1e6).round()), (0.2, 100_500.0));
        assert!(TraceFile::default().summary(Stage::Read).is_none());
    }

    #[test]
    fn other_files_are_refused_with_the_place() {
        let refused = |text: &str| TraceFile::read(text.as_bytes()).unwrap_err();
        assert!(refused("a,b\n").contains("drover.trace/1"));
        assert!(refused(&format!("# {FORMAT}\nstart_us\n")).contains("'stat_us'"));
        assert!(refused(&text("1,2\n")).contains("line 3"));
        let wrong = refused(&text("1,2,3,4,5,6,7,8,9,ok,11,sent,0,1,memory\n"));
        assert!(wrong.contains("line 3") && wrong.contains("field 10"), "{wrong}");
    }
}
