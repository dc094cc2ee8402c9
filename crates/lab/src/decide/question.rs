//! The question of a user, and how much of the question this machine can measure.

use crate::plan::limits::{MachineLimits, descriptors};
use crate::report::model::words::{counted, number};
use crate::site::SampledFiles;

/// Descriptors that a server of files reserves for files.
const FOR_FILES: u64 = 1024;

/// The share of the descriptors that several workers use for connections. Each worker has an equal share of the
/// descriptors, but workers never get exactly equal shares of the connections.
const EVEN: f64 = 0.8;

/// Source addresses for more connections than one address has ports.
const SOURCES: &str = "127.77.0.0/24";

/// The question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// How many connections are open, at least one.
    pub connections: u64,
    /// The share of them that asks for something, above 0 and at most 1; the others are idle.
    pub active: f64,
    /// What the active connections request.
    pub response: ResponseKind,
    /// How many workers serve, at least one.
    pub workers: u64,
    /// What happens to a connection after its response.
    pub lifetime: Lifetime,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseKind {
    /// Bodies of this many bytes, without a file.
    Bytes(u64),
    /// Files of a folder.
    Files(SampledFiles),
}

/// What happens to a connection after its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The connection is closed. Each request has a new connection.
    Short,
    /// The connection is kept.
    Long,
}

/// The question in the size in which this machine can measure it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledQuestion {
    /// The number of connections that send requests.
    pub active: u64,
    /// Connections that are idle.
    pub idle: u64,
    /// Processors of the server; the load has the others.
    pub processors: usize,
    /// Threads of the load, one for each of its processors.
    pub load_threads: u64,
    /// The source addresses of connections, if one address has too few ports.
    pub source: Option<&'static str>,
    /// What of the question this machine cannot measure, and where it could be measured, in sentences.
    pub gaps: Vec<String>,
}

impl Question {
    /// The question in a line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let what = match &self.response {
            ResponseKind::Bytes(bytes) => format!("{bytes} bytes each"),
            ResponseKind::Files(files) => files.in_words(),
        };
        let lifetime = match self.lifetime {
            Lifetime::Short => "a connection for each request",
            Lifetime::Long => "connections are kept",
        };
        format!(
            "{}, {} % of them active, {lifetime}, {what}, {}",
            counted(self.connections as usize, "connection"),
            number(self.active * 100.0),
            counted(self.workers as usize, "worker")
        )
    }

    /// The question as a machine with these limits can ask it.
    ///
    /// # Errors
    /// In words: not a single connection can be opened here.
    pub fn here(&self, limits: &MachineLimits) -> Result<ScaledQuestion, String> {
        let mut gaps = Vec::new();
        let most = self.most_connections(limits.descriptors);
        let connections = self.connections.min(most);
        if connections == 0 {
            return Err(format!(
                "a process may open {} files here, which leaves none for connections: raise the hard limit \
                 (ulimit -Hn, LimitNOFILE=)",
                limits.descriptors
            ));
        }
        if connections < self.connections {
            gaps.push(self.scaled_down(connections, limits.descriptors));
        }
        let active = ((connections as f64 * self.active).round() as u64).clamp(1, connections);
        let all = limits.processors.len().max(1);
        // A load that brings a server to its limit needs about as many processors as the server.
        let processors = (all / 2).max(1).min(usize::try_from(self.workers).unwrap_or(usize::MAX));
        let load_threads = all.saturating_sub(processors).max(1) as u64;
        gaps.extend(self.shared_processors(processors, all));
        gaps.push(
            "No network is between server and load: all of it is the loopback interface."
                .to_owned(),
        );
        if let ResponseKind::Files(_) = self.response {
            gaps.push(
                "The files are in memory: what a disk would change, 'drover lab run raw-file-io cold-readers' \
                 tells."
                    .to_owned(),
            );
        }
        Ok(ScaledQuestion {
            active,
            idle: connections - active,
            processors,
            load_threads: load_threads.min(active),
            source: (connections > limits.ports).then_some(SOURCES),
            gaps,
        })
    }

    /// How many connections a process with this limit of descriptors can have.
    fn most_connections(&self, limit: u64) -> u64 {
        let for_files = match self.response {
            ResponseKind::Bytes(_) => 0,
            ResponseKind::Files(_) => FOR_FILES.min(limit / 2),
        };
        let free = limit.saturating_sub(descriptors(0) + for_files);
        match self.workers {
            1 => free,
            _ => (free as f64 * EVEN) as u64,
        }
    }

    fn scaled_down(&self, connections: u64, limit: u64) -> String {
        let shares = match self.workers {
            1 => "",
            _ => ", of which each worker has an equal share",
        };
        format!(
            "Measured with {connections} of {} connections because the limit of open files is {limit}{shares}: \
             raise the hard limit (ulimit -Hn, LimitNOFILE=).",
            self.connections
        )
    }

    /// A remark that workers share processors, and how many processors would avoid it.
    fn shared_processors(&self, processors: usize, all: usize) -> Option<String> {
        let workers = self.workers;
        if workers <= processors as u64 {
            return None;
        }
        let have = counted(processors, "processor");
        let server = match all {
            1 => format!("{have}, which the load uses too"),
            _ => format!("{have} (the load has {})", all - processors),
        };
        Some(format!(
            "{workers} workers have {server} here: what is measured is workers that share processors. For \
             {workers} workers that do not, run the same command on a machine of {} processors.",
            2 * workers
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Processor;
    use crate::plan::room::Room;

    fn question() -> Question {
        Question {
            connections: 20_000,
            active: 0.05,
            response: ResponseKind::Bytes(4096),
            workers: 1,
            lifetime: Lifetime::Long,
        }
    }

    fn limits(processors: usize, descriptors: u64) -> MachineLimits {
        let processor = |number| Processor { number, siblings: [number].into() };
        MachineLimits {
            processors: (0..processors).map(processor).collect(),
            descriptors,
            ports: 28_232,
            room: Room::default(),
        }
    }

    #[test]
    fn a_share_of_the_connections_asks_and_the_others_are_idle() {
        let scene = question().here(&limits(4, 1 << 20)).unwrap();
        assert_eq!((scene.active, scene.idle, scene.source), (1000, 19_000, None));
        assert_eq!((scene.processors, scene.load_threads), (1, 3));
        assert!(scene.gaps.iter().all(|gap| !gap.contains("Measured with")), "{:?}", scene.gaps);
        let few = Question { connections: 3, active: 0.001, ..question() };
        let scene = few.here(&limits(4, 1024)).unwrap();
        assert_eq!((scene.active, scene.idle, scene.load_threads), (1, 2, 1));
        let many = Question { connections: 50_000, ..question() };
        assert!(many.here(&limits(4, 1 << 20)).unwrap().source.is_some());
        let words = question().in_words();
        assert!(words.starts_with("20000 connections, 5 % of them active"), "{words}");
    }

    #[test]
    fn the_limit_of_open_files_scales_the_question_down_and_is_told() {
        let scene = question().here(&limits(2, 10_200)).unwrap();
        assert_eq!((scene.active, scene.idle), (500, 9500));
        let told = "Measured with 10000 of 20000 connections because the limit of open files is 10200: raise";
        assert!(scene.gaps[0].starts_with(told), "{:?}", scene.gaps);
        // Workers have equal shares of the descriptors, and unequal shares of the connections.
        let scene = Question { workers: 4, ..question() }.here(&limits(2, 10_200)).unwrap();
        assert_eq!(scene.active + scene.idle, 8000);
        assert!(scene.gaps[0].contains("each worker"), "{:?}", scene.gaps);
        let why = question().here(&limits(2, 100)).unwrap_err();
        assert!(why.contains("ulimit -Hn"), "{why}");
    }

    #[test]
    fn too_few_processors_are_told_with_what_to_run_where() {
        let question = Question { workers: 16, ..question() };
        let scene = question.here(&limits(2, 1 << 20)).unwrap();
        assert_eq!((scene.processors, scene.load_threads), (1, 1));
        let gap = scene.gaps.iter().find(|gap| gap.contains("16 workers")).unwrap();
        assert!(gap.contains("share processors") && gap.contains("of 32 processors"), "{gap}");
        let scene = question.here(&limits(32, 1 << 20)).unwrap();
        assert_eq!(scene.processors, 16);
        assert!(!scene.gaps.iter().any(|gap| gap.contains("16 workers")), "{:?}", scene.gaps);
        let alone = question.here(&limits(1, 1 << 20)).unwrap();
        assert!(alone.gaps.iter().any(|gap| gap.contains("which the load uses too")), "{alone:?}");
    }
}
