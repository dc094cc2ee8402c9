//! Which processors the subject and the load run on.

use std::collections::BTreeSet;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The processors of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The subject's processors; empty: any.
    pub subject: Vec<usize>,
    /// The processors of the load generator and of everything else that the lab runs; empty: any.
    pub load: Vec<usize>,
    /// Whether subject and load have a single processor together.
    #[serde(default)]
    pub is_shared: bool,
    /// A remark on the placement for readers of the result.
    pub note: Option<String>,
}

/// A processor, and the processors that share its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its number.
    pub number: usize,
    /// The numbers of the processors of its core, including its own.
    pub siblings: BTreeSet<usize>,
}

/// The processors that this process may use, in ascending order.
///
/// # Errors
/// [`Failure::Failed`] with what sched_getaffinity(2) says.
pub fn processors() -> Result<Vec<Processor>, Failure> {
    let usable = drover_sys::process::usable_cpus().map_err(Failure::failed)?;
    let of = |number: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        let siblings = fs::read_to_string(path).ok().map(|text| list(&text)).unwrap_or_default();
        let siblings = siblings.into_iter().chain([number]).collect();
        Processor { number, siblings }
    };
    Ok(usable.into_iter().map(of).collect())
}

/// Parses a list in the kernel's form: `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

impl Placement {
    /// Gives the subject `wanted` processors on different cores, as far as there are enough cores. Gives the load the
    /// other cores: a load on a sibling of the subject's processor would slow the subject's core down by up to half.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if no processor is left for the load.
    pub fn choose(processors: &[Processor], wanted: usize) -> Result<Placement, Failure> {
        if processors.len() == 1 && wanted == 1 {
            let note = "Subject and load share the only processor: response times contain waiting \
                        for each other.";
            let note = Some(note.to_string());
            return Ok(Placement { is_shared: true, note, ..Placement::default() });
        }
        if wanted >= processors.len() {
            return Err(Failure::not_testable(format!(
                "a subject on {wanted} processors and its load need {} of them, and {} can be used",
                wanted + 1,
                processors.len()
            )));
        }
        let mut subject: Vec<&Processor> = Vec::new();
        let is_on_a_core_of = |chosen: &[&Processor], it: &Processor| {
            chosen.iter().any(|chosen| chosen.siblings.contains(&it.number))
        };
        // First one processor of each core, then the others.
        for own_core in [true, false] {
            for it in processors {
                let is_chosen = subject.iter().any(|chosen| chosen.number == it.number);
                if subject.len() < wanted
                    && !is_chosen
                    && (!own_core || !is_on_a_core_of(&subject, it))
                {
                    subject.push(it);
                    // The last core is kept for the load, unless there is only one core.
                    let free = processors.iter().any(|it| !is_on_a_core_of(&subject, it));
                    if own_core && !free {
                        subject.pop();
                        break;
                    }
                }
            }
        }
        let is_subject = |it: &&Processor| subject.iter().any(|its| its.number == it.number);
        let others: Vec<&Processor> = processors.iter().filter(|it| !is_subject(it)).collect();
        let apart = others.iter().filter(|it| !is_on_a_core_of(&subject, it));
        let mut load: Vec<usize> = apart.map(|it| it.number).collect();
        let mut note = None;
        if load.is_empty() {
            load = others.iter().map(|it| it.number).collect();
            note = Some("Subject and load share a core: each slows the other down.".to_string());
        }
        let mut subject: Vec<usize> = subject.iter().map(|it| it.number).collect();
        subject.sort_unstable();
        Ok(Placement { subject, load, is_shared: false, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: &[&[usize]]) -> Vec<Processor> {
        let mut all: Vec<Processor> = cores
            .iter()
            .flat_map(|core| {
                let siblings: BTreeSet<usize> = core.iter().copied().collect();
                core.iter()
                    .map(move |number| Processor { number: *number, siblings: siblings.clone() })
            })
            .collect();
        all.sort_by_key(|it| it.number);
        all
    }

    fn chosen(cores: &[&[usize]], wanted: usize) -> (Vec<usize>, Vec<usize>, bool) {
        let placement = Placement::choose(&machine(cores), wanted).unwrap();
        (placement.subject, placement.load, placement.note.is_some())
    }

    #[test]
    fn the_load_keeps_off_the_subject_s_cores() {
        assert_eq!(chosen(&[&[0], &[1]], 1), (vec![0], vec![1], false));
        assert_eq!(chosen(&[&[0, 4], &[1, 5], &[2, 6]], 1), (vec![0], vec![1, 2, 5, 6], false));
        assert_eq!(chosen(&[&[0, 1], &[2, 3], &[4, 5]], 2), (vec![0, 2], vec![4, 5], false));
        // With more processors than cores, siblings of the subject's own processors are used before the load's core.
        assert_eq!(chosen(&[&[0, 1], &[2, 3]], 2), (vec![0, 1], vec![2, 3], false));
    }

    #[test]
    fn what_cannot_be_kept_apart_is_said() {
        assert_eq!(chosen(&[&[0, 1]], 1), (vec![0], vec![1], true));
        assert_eq!(chosen(&[&[3]], 1), (vec![], vec![], true));
        assert!(Placement::choose(&machine(&[&[3]]), 1).unwrap().is_shared);
        assert!(!Placement::choose(&machine(&[&[0, 1]]), 1).unwrap().is_shared);
        let failure = Placement::choose(&machine(&[&[0], &[1]]), 2).unwrap_err();
        assert!(matches!(failure, Failure::NotTestable(_)));
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(list(""), Vec::<usize>::new());
        assert!(!processors().unwrap().is_empty());
    }
}
