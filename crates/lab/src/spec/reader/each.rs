//! `each`: a subject that stands for every mechanism of a kind that the experiment does not name itself.
//!
//! A mechanism that is new in the program is so measured by every experiment that has such a subject, and no
//! list in a file has to be longer for it. It happens before names and placeholders are checked, so that
//! each mechanism is a subject like any other.

use drover_mech::{accept, fileio, mechanisms};
use indexmap::IndexMap;

use crate::document::{KeyEntry, Node, Value};

/// The key of a subject that says of which kind.
const KEY: &str = "each";

/// What stands for the mechanism's name in the subject's texts.
const PLACEHOLDER: &str = "{each}";

/// The keys of lists that have the names of subjects.
const LISTS: [&str; 4] = ["subjects", "also", "of", "against"];

/// A subject for each mechanism, in the place of those with the key `each`, also in lists of subjects.
pub(super) fn expand(root: &mut Node) {
    let Value::Table(top) = &mut root.value else { return };
    let Some(KeyEntry { node, .. }) = top.get_mut("subject") else { return };
    let Value::Table(subjects) = &mut node.value else { return };
    let named: Vec<String> = subjects.keys().cloned().collect();
    let mut members: IndexMap<String, Vec<String>> = IndexMap::new();
    for (name, entry) in std::mem::take(subjects) {
        let Some(all) = entry.node.get(KEY).and_then(Node::text).and_then(names) else {
            subjects.insert(name, entry);
            continue;
        };
        let is_new = |mechanism: &&str| !named.iter().any(|it| it == mechanism);
        let new: Vec<&str> = all.into_iter().filter(is_new).collect();
        for mechanism in &new {
            subjects.insert((*mechanism).to_owned(), of_mechanism(&entry, mechanism));
        }
        members.insert(name, new.into_iter().map(str::to_owned).collect());
    }
    if !members.is_empty() {
        in_lists(root, &members);
    }
}

/// Every mechanism of a kind; `None`: there is no such kind, which the check of the file says.
fn names(kind: &str) -> Option<Vec<&'static str>> {
    Some(match kind {
        "dispatch" => mechanisms::ALL.iter().map(|it| it.name).collect(),
        "accept" => accept::ALL.iter().map(|it| it.name).collect(),
        "files" => fileio::ALL.iter().map(|it| it.name).collect(),
        _ => return None,
    })
}

/// The subject of one mechanism.
fn of_mechanism(entry: &KeyEntry, mechanism: &str) -> KeyEntry {
    let mut entry = entry.clone();
    if let Value::Table(keys) = &mut entry.node.value {
        keys.shift_remove(KEY);
    }
    fill(&mut entry.node, mechanism);
    entry
}

fn fill(node: &mut Node, mechanism: &str) {
    match &mut node.value {
        Value::Text(text) => *text = text.replace(PLACEHOLDER, mechanism),
        Value::List(items) => items.iter_mut().for_each(|item| fill(item, mechanism)),
        Value::Table(entries) => {
            entries.values_mut().for_each(|entry| fill(&mut entry.node, mechanism));
        }
        _ => {}
    }
}

/// Puts the names of the members in the place of the subject that stands for them.
fn in_lists(node: &mut Node, members: &IndexMap<String, Vec<String>>) {
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| in_lists(item, members)),
        Value::Table(entries) => {
            for (key, entry) in entries {
                match &mut entry.node.value {
                    Value::List(items) if LISTS.contains(&key.as_str()) => {
                        *items = items.drain(..).flat_map(|item| spliced(item, members)).collect();
                    }
                    _ => in_lists(&mut entry.node, members),
                }
            }
        }
        _ => {}
    }
}

fn spliced(item: Node, members: &IndexMap<String, Vec<String>>) -> Vec<Node> {
    match item.text().and_then(|name| members.get(name)) {
        None => vec![item],
        Some(names) => {
            let place = &item.place;
            let named =
                |name: &String| Node { place: place.clone(), value: Value::Text(name.clone()) };
            names.iter().map(named).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::made::read_made;

    fn read(subjects: &str, preset: &str) -> Result<crate::spec::Experiment, crate::spec::Faults> {
        read_made(&format!(
            "schema = 'drover.experiment/2'\nid = 'x'\ntitle = 'X'\n{subjects}\n[load.http]\nconnections = 1\n\
             [[claim]]\nid = 'a'\ntext = 'A.'\nby = 'ours'\nholds = {{ above = 1 }}\n\
             effect = {{ ratio = 'response-rate', of = 'poll', against = ['select', 'others'] }}\n\
             [presets.quick]\nsubjects = {preset}\n"
        ))
    }

    #[test]
    fn every_mechanism_that_is_not_named_is_a_subject_once() {
        let experiment = read(
            "[subject.poll]\nserve = []\n[subject.select]\nserve = []\n\
             [subject.others]\neach = 'dispatch'\ntitle = 'under {each}'\n\
             serve = ['--dispatch', '{each}']",
            "['poll', 'others', 'select']",
        );
        let experiment = experiment.unwrap();
        let all: Vec<&str> = drover_mech::mechanisms::ALL.iter().map(|it| it.name).collect();
        assert_eq!(experiment.subject.len(), all.len());
        let preset = experiment.presets["quick"].subjects.as_deref().unwrap();
        assert_eq!((preset[0].as_str(), preset.last().unwrap().as_str()), ("poll", "select"));
        for name in &all {
            assert!(preset.iter().any(|it| it == name), "{name}");
            if ["poll", "select"].contains(name) {
                assert_eq!(experiment.subject[*name].serve.as_deref(), Some(&[][..]));
                continue;
            }
            let subject = &experiment.subject[*name];
            assert_eq!(subject.serve.as_deref().unwrap(), ["--dispatch", name]);
            assert_eq!(subject.title.as_deref(), Some(&*format!("under {name}")));
        }
    }

    #[test]
    fn kinds_that_there_are_not_and_placeholders_elsewhere_are_refused() {
        let subjects = "[subject.poll]\nserve = []\n[subject.select]\nserve = []\n";
        for (other, expected) in [
            ("[subject.others]\neach = 'disk'\nserve = []", "each cannot be 'disk'"),
            ("[subject.others]\nserve = ['{each}']", "each"),
        ] {
            let told = read(&format!("{subjects}{other}"), "['poll']").unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
    }
}
