//! Reads an experiment file and the files that it includes.

pub mod built_in;
mod check;
mod each;
mod embedded;
pub(crate) mod made;
mod walk;

pub(crate) use check::is_id;

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use indexmap::IndexMap;
use serde::Deserialize;

use crate::document::{Fault, Faults, KeyEntry, Node, SourceText, Value, suggestion};
use crate::model::Level;
use crate::spec::claim::{Published, PublishedValue};
use crate::spec::experiment::{Experiment, Fragment, QUICK, SCHEMA};
use crate::spec::preset::Preset;
use crate::spec::schema;
use crate::spec::subject::SubjectSpec;

/// The tables of included files. They are merged.
const SHARED: [&str; 4] = ["subject", "factor", "pool", "metric"];

/// Top-level keys of an experiment file of version 1 that version 2 lacks.
const OF_VERSION_ONE: [&str; 6] =
    ["mechanisms", "workload", "compares", "servers", "figures", "claims"];

/// The source of an experiment's files.
pub trait FileSource {
    /// The text of a file.
    ///
    /// # Errors
    /// What the file system says, for example that there is no such file.
    fn text(&self, path: &Path) -> io::Result<String>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl FileSource for DiskFiles {
    fn text(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }
}

/// Reads the experiment in a file, and the files that it includes.
///
/// # Errors
/// All faults of all files, each with file, line and column.
pub fn read(path: &Path) -> Result<Experiment, Faults> {
    read_from(&DiskFiles, path)
}

/// Reads the experiment at `path` of `files`.
///
/// # Errors
/// The errors of [`read`].
pub fn read_from(files: &dyn FileSource, path: &Path) -> Result<Experiment, Faults> {
    let mut reader = Reader { files, faults: Vec::new(), read: BTreeSet::new() };
    let found = reader.experiment(path);
    match found {
        Some(experiment) if reader.faults.is_empty() => Ok(experiment),
        _ => Err(Faults::new(reader.faults)),
    }
}

struct Reader<'a> {
    files: &'a dyn FileSource,
    faults: Vec<Fault>,
    /// The files that were included. Each file is read once.
    read: BTreeSet<PathBuf>,
}

impl Reader<'_> {
    fn experiment(&mut self, path: &Path) -> Option<Experiment> {
        let name = path.display().to_string();
        let text = match self.files.text(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                self.faults.push(Fault { file: name, line: 1, column: 1, message });
                return None;
            }
        };
        let mut root = self.parse(Rc::new(SourceText { name, text }))?;
        if let Some(fault) = wrong_version(&root) {
            self.faults.push(fault);
            return None;
        }
        self.faults.extend(walk::check(&root, schema::experiment()));
        let mut shared = IndexMap::new();
        self.includes(&root, path, &mut vec![normal(path)], &mut shared);
        self.put_together(&mut root, shared);
        each::expand(&mut root);
        self.faults.extend(check::check(&root));
        if !self.faults.is_empty() {
            return None;
        }
        match Experiment::deserialize(root.plain()) {
            Ok(mut experiment) => {
                self.complete(&mut experiment, path, &root);
                Some(experiment)
            }
            Err(error) => {
                self.faults.push(root.place.fault(error.message().to_owned()));
                None
            }
        }
    }

    fn parse(&mut self, source: Rc<SourceText>) -> Option<Node> {
        match Node::parse(&source) {
            Ok(root) => Some(root),
            Err(faults) => {
                self.faults.extend(faults);
                None
            }
        }
    }

    /// Reads the files that `root`, the file at `path`, includes, into `shared`. The keys of `shared` are table and
    /// name.
    fn includes(
        &mut self,
        root: &Node,
        path: &Path,
        stack: &mut Vec<PathBuf>,
        shared: &mut IndexMap<(String, String), KeyEntry>,
    ) {
        let Some(list) = root.get("include") else { return };
        for item in list.items() {
            let Some(name) = item.text() else { continue };
            let path = normal(&path.parent().unwrap_or(Path::new("")).join(name));
            if let Some(first) = stack.iter().position(|other| *other == path) {
                let mut way: Vec<String> =
                    stack[first..].iter().map(|it| it.display().to_string()).collect();
                way.push(path.display().to_string());
                let message = format!("'{name}' includes itself: {}", way.join(" → "));
                self.faults.push(item.place.fault(message));
                continue;
            }
            if !self.read.insert(path.clone()) {
                continue;
            }
            let text = match self.files.text(&path) {
                Ok(text) => text,
                Err(error) => {
                    let message = format!("cannot read '{}': {error}", path.display());
                    self.faults.push(item.place.fault(message));
                    continue;
                }
            };
            let source = SourceText { name: path.display().to_string(), text };
            let Some(included) = self.parse(Rc::new(source)) else { continue };
            self.faults.extend(walk::check(&included, schema::fragment()));
            stack.push(path.clone());
            self.includes(&included, &path, stack, shared);
            stack.pop();
            self.collect(&included, shared);
        }
    }

    /// Adds the shared tables of a file to those of earlier files.
    fn collect(&mut self, file: &Node, shared: &mut IndexMap<(String, String), KeyEntry>) {
        for table in SHARED {
            let Some(entries) = file.get(table) else { continue };
            for (name, entry) in entries.entries() {
                match shared.entry((table.to_owned(), name.clone())) {
                    indexmap::map::Entry::Vacant(vacant) => {
                        vacant.insert(entry.clone());
                    }
                    indexmap::map::Entry::Occupied(before) => {
                        let before = before.get().key.fault("");
                        self.faults.push(entry.key.fault(format!(
                            "the {table} '{name}' is also in {}:{}; rename one of them",
                            before.file, before.line
                        )));
                    }
                }
            }
        }
    }

    /// Puts the included tables before the file's own entries.
    fn put_together(&mut self, root: &mut Node, mut shared: IndexMap<(String, String), KeyEntry>) {
        self.collect(root, &mut shared);
        let place = root.place.clone();
        let Value::Table(top) = &mut root.value else { return };
        for ((table, name), entry) in shared {
            let whole = top.entry(table).or_insert_with(|| KeyEntry {
                key: place.clone(),
                node: Node { place: place.clone(), value: Value::Table(IndexMap::new()) },
            });
            // The file's own entries follow the included ones.
            if let Value::Table(entries) = &mut whole.node.value {
                entries.shift_remove(&name);
                entries.insert(name, entry);
            }
        }
    }

    /// Fills in what the file takes from elsewhere: known servers, published values from files, and the default
    /// preset.
    fn complete(&mut self, experiment: &mut Experiment, path: &Path, root: &Node) {
        for (name, subject) in &mut experiment.subject {
            let Some(peer) = subject.peer.clone() else { continue };
            match known().subject.get(&peer).cloned() {
                Some(known) => *subject = with_peer(subject, known),
                None => {
                    let place = root.get("subject").and_then(|it| it.get(name)?.get("peer"));
                    let place = place.map_or(&root.place, |node| &node.place);
                    let known = peers();
                    let suggestion = suggestion(&peer, known.iter().map(String::as_str));
                    self.faults
                        .push(place.fault(format!("no server '{peer}' is known{suggestion}")));
                }
            }
        }
        let claims = experiment.claim.iter_mut().map(|claim| &mut claim.published);
        let claims = claims.zip(root.get("claim").map_or(&[][..], Node::items));
        let figures = experiment.figure.iter_mut().map(|figure| &mut figure.published);
        let figures = figures.zip(root.get("figure").map_or(&[][..], Node::items));
        for (published, node) in claims.chain(figures) {
            let Some(Published::Data(data)) = published else { continue };
            let Some(csv) = &data.csv else { continue };
            let file = normal(&path.parent().unwrap_or(Path::new("")).join(csv));
            let place = node.get("published").and_then(|it| it.get("csv"));
            let place = place.map_or(&node.place, |node| &node.place);
            match self.files.text(&file) {
                Ok(text) => match rows(&text) {
                    Ok(rows) => data.rows.extend(rows),
                    Err((line, message)) => self.faults.push(Fault {
                        file: file.display().to_string(),
                        line,
                        column: 1,
                        message,
                    }),
                },
                Err(error) => {
                    let message = format!("cannot read '{}': {error}", file.display());
                    self.faults.push(place.fault(message));
                }
            }
        }
        if experiment.presets.is_empty() {
            experiment.presets.insert(QUICK.to_owned(), Preset::default());
        }
    }
}

/// The fault of a file that has another version.
fn wrong_version(root: &Node) -> Option<Fault> {
    let migrate = format!(
        "version 2 begins with schema = \"{SCHEMA}\" and has a table [subject.NAME] for each mechanism, \
         [factor.NAME] for each axis and [load.http] for the workload; docs/experiments.md shows every key"
    );
    match root.get("schema") {
        Some(node) if node.text() == Some(SCHEMA) => None,
        Some(node) => {
            let named = node.text().unwrap_or(node.kind().words());
            Some(node.place.fault(format!(
                "schema is '{named}', and this program reads '{SCHEMA}': {migrate}"
            )))
        }
        None if OF_VERSION_ONE.iter().any(|key| root.entry(key).is_some()) => {
            Some(root.place.fault(format!(
                "this is an experiment of version 1, which is no longer read: {migrate}"
            )))
        }
        None => Some(root.place.fault(format!(
            "the key 'schema' is missing: begin the file with schema = \"{SCHEMA}\""
        ))),
    }
}

/// The known server, with the keys that the subject replaces.
fn with_peer(subject: &SubjectSpec, known: SubjectSpec) -> SubjectSpec {
    let mut all = known;
    all.peer.clone_from(&subject.peer);
    all.env.extend(subject.env.clone());
    all.files.extend(subject.files.clone());
    all.find.extend(subject.find.clone());
    if !subject.limits.is_empty() {
        all.limits = subject.limits.clone();
    }
    all.tls = subject.tls.clone().or(all.tls);
    all.http2 = subject.http2.clone().or(all.http2);
    all.install = subject.install.clone().or(all.install);
    all.cpus = subject.cpus.clone().or(all.cpus);
    all.ready = subject.ready.clone().or(all.ready);
    all.only.clone_from(&subject.only);
    all.unavailable = subject.unavailable.clone().or(all.unavailable);
    all.title = subject.title.clone().or(all.title);
    all.model = subject.model;
    all
}

/// The path without `.` and without pairs of a folder and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(normal.components().next_back(), Some(Component::Normal(_))) =>
            {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// Reads published values: a line of names (`subject`, factors, and `value`), then a line for each value. A line that
/// begins with `#` is a comment.
///
/// # Errors
/// The number of the line, from 1, and what is wrong.
fn rows(text: &str) -> Result<Vec<PublishedValue>, (usize, String)> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (first, header) = lines.next().ok_or((1, "the file has no line of names".to_owned()))?;
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    for needed in ["subject", "value"] {
        if !names.contains(&needed) {
            return Err((first, format!("there is no column '{needed}'")));
        }
    }
    let mut rows = Vec::new();
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != names.len() {
            let message = format!("{} columns, and {} names", cells.len(), names.len());
            return Err((number, message));
        }
        let mut row =
            PublishedValue { subject: String::new(), levels: Default::default(), value: 0.0 };
        for (name, cell) in names.iter().zip(cells) {
            match (*name, cell.parse::<f64>()) {
                ("subject", _) => row.subject = cell.to_owned(),
                ("value", Ok(value)) if value.is_finite() => row.value = value,
                ("value", _) => return Err((number, format!("'{cell}' is no number"))),
                (factor, Ok(level)) => drop(row.levels.insert(factor.into(), Level::Number(level))),
                (factor, Err(_)) => {
                    drop(row.levels.insert(factor.into(), Level::Name(cell.to_owned())));
                }
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Reads a file of subjects and factors that experiments include. Its own includes are not read.
///
/// # Errors
/// The faults of the file.
pub(super) fn fragment(name: &str, text: &str) -> Result<Fragment, Faults> {
    let source = Rc::new(SourceText { name: name.to_owned(), text: text.to_owned() });
    let root = Node::parse(&source).map_err(Faults::new)?;
    let faults = walk::check(&root, schema::fragment());
    if !faults.is_empty() {
        return Err(Faults::new(faults));
    }
    Fragment::deserialize(root.plain())
        .map_err(|error| Faults::new(vec![root.place.fault(error.message().to_owned())]))
}

/// The servers that are known by name.
fn known() -> Fragment {
    let (name, text) = embedded::SHARED[0];
    fragment(name, text).expect("a test reads the known servers")
}

/// The names of the servers that are known.
#[must_use]
pub fn peers() -> Vec<String> {
    known().subject.keys().cloned().collect()
}
