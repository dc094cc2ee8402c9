//! Checks the names in an experiment file: every subject, factor, level, case, metric, pool and placeholder that is
//! mentioned has to be defined.
//!
//! The checks use the document and not the types, so that a file with faults in its structure is checked too. Parts
//! with an unexpected structure are skipped, because `walk` has reported them.

use std::collections::BTreeMap;

use crate::document::{Fault, Location, Node, Type, listed, nearest, suggestion};
use crate::model::Level;
use crate::old_names;
use crate::spec::factor::CASE;
use crate::spec::metric;
use crate::spec::setting;

/// The placeholders of a server's texts, besides factors.
const OF_SUBJECTS: [&str; 7] = ["port", "host", "root", "work", "drover", "cert", "key"];
/// The placeholders of a generator's arguments, besides factors.
const OF_GENERATORS: [&str; 10] =
    ["url", "host", "port", "ca", "seconds", "seed", "urls", "result", "work", "drover"];
/// The placeholders in the keys of an HTTP load, besides factors.
const OF_HTTP: [&str; 3] = ["host", "port", "work"];

/// All faults of names in `root`, an experiment with everything that it includes.
pub(super) fn check(root: &Node) -> Vec<Fault> {
    let mut check = Check { root, factors: factors(root), faults: Vec::new() };
    check.id();
    check.cases();
    check.factors();
    check.subjects();
    check.loads();
    check.metrics();
    check.counted();
    check.claims();
    check.figures();
    check.presets();
    check.faults
}

/// Whether a text can be the id of an experiment, which is the name of a folder.
pub(crate) fn is_id(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    text.starts_with(char::is_alphanumeric) && text.chars().all(is_part)
}

struct Check<'a> {
    root: &'a Node,
    /// Every factor with all its levels: its own, and those of presets and cases.
    factors: BTreeMap<String, Vec<Level>>,
    faults: Vec<Fault>,
}

/// The level that a node has, if it is a level.
fn level(node: &Node) -> Option<Level> {
    let name = node.text().map(|text| Level::Name(text.to_owned()));
    name.or(node.number().map(Level::Number))
}

/// The tables below the key, by name.
fn tables<'a>(root: &'a Node, key: &str) -> impl Iterator<Item = (&'a String, &'a Node)> + use<'a> {
    root.get(key).into_iter().flat_map(Node::entries).map(|(name, entry)| (name, &entry.node))
}

/// The tables in the list of the key.
fn list<'a>(root: &'a Node, key: &str) -> &'a [Node] {
    root.get(key).map_or(&[], Node::items)
}

fn factors(root: &Node) -> BTreeMap<String, Vec<Level>> {
    let mut all: BTreeMap<String, Vec<Level>> = BTreeMap::new();
    let mut add = |name: &str, node: &Node| {
        let known = all.entry(name.to_owned()).or_default();
        for level in node.items().iter().chain([node]).filter_map(level) {
            if !known.contains(&level) {
                known.push(level);
            }
        }
    };
    for (name, factor) in tables(root, "factor") {
        add(name, factor.get("levels").unwrap_or(factor));
    }
    for case in list(root, "case") {
        for (key, entry) in case.entries() {
            add(if key == "name" { CASE } else { key }, &entry.node);
        }
    }
    // Levels of unknown factors are ignored here: `presets` reports them.
    let known: Vec<String> = all.keys().cloned().collect();
    for (_, preset) in tables(root, "presets") {
        for (name, entry) in preset.get("levels").into_iter().flat_map(Node::entries) {
            if let (true, Some(levels)) = (known.contains(name), all.get_mut(name)) {
                levels.extend(entry.node.items().iter().filter_map(level));
            }
        }
    }
    all
}

impl<'a> Check<'a> {
    fn fault(&mut self, place: &Location, message: String) {
        self.faults.push(place.fault(message));
    }

    /// Checks that a name is one of the known names.
    fn name(&mut self, node: &Node, what: &str, known: &[&str]) {
        if let Some(name) = node.text().filter(|name| !known.contains(name)) {
            let suggestion = suggestion(name, known.iter().copied());
            self.fault(&node.place, format!("no {what} is called '{name}'{suggestion}"));
        }
    }

    /// Checks each name of a list.
    fn names(&mut self, node: Option<&Node>, what: &str, known: &[&str]) {
        for item in node.into_iter().flat_map(Node::items) {
            self.name(item, what, known);
        }
    }

    fn subject_names(&self) -> Vec<&'a str> {
        self.root.get("subject").map(Node::keys).unwrap_or_default()
    }

    fn pool_names(&self) -> Vec<&'a str> {
        self.root.get("pool").map(Node::keys).unwrap_or_default()
    }

    fn case_names(&self) -> Vec<&'a str> {
        let cases = list(self.root, "case").iter();
        cases.filter_map(|case| case.get("name")?.text()).collect()
    }

    fn metric_names(&self) -> Vec<&'a str> {
        let mut names = self.root.get("metric").map(Node::keys).unwrap_or_default();
        names.extend(metric::BUILT_IN.iter().map(|metric| metric.name));
        names.extend(old_names::METRICS.iter().map(|(old, _)| *old));
        names
    }

    fn metric_name(&mut self, node: &Node) {
        let known = self.metric_names();
        self.name(node, "metric", &known);
    }

    /// Checks the name of a factor. Returns whether the factor exists.
    fn factor_name(&mut self, name: &str, place: &Location) -> bool {
        if self.factors.contains_key(name) {
            return true;
        }
        let suggestion = suggestion(name, self.factors.keys().map(String::as_str));
        self.fault(place, format!("no factor is called '{name}'{suggestion}"));
        false
    }

    /// Checks a table of factors and their levels, for example `where`. Without `any_level`, only levels that some
    /// preset runs are accepted.
    fn levels(&mut self, table: Option<&Node>, any_level: bool) {
        for (name, entry) in table.into_iter().flat_map(Node::entries) {
            if !self.factor_name(name, &entry.key) || any_level {
                continue;
            }
            for node in entry.node.items().iter().chain([&entry.node]) {
                self.level_of(name, node);
            }
        }
    }

    /// Checks that a level is one of a factor's levels.
    fn level_of(&mut self, factor: &str, node: &Node) {
        let (Some(level), Some(known)) = (level(node), self.factors.get(factor)) else { return };
        if known.is_empty() || known.contains(&level) {
            return;
        }
        let names: Vec<String> = known.iter().map(Level::to_string).collect();
        let message =
            format!("'{level}' is no level of the factor '{factor}': it has {}", names.join(", "));
        self.fault(&node.place, message);
    }

    /// Checks the placeholders of every text in `node`.
    fn placeholders(&mut self, node: &Node, others: &[&str]) {
        for (text, place) in node.texts() {
            for name in setting::placeholders(text) {
                if !self.factors.contains_key(name) && !others.contains(&name) {
                    let known = self.factors.keys().map(String::as_str);
                    let suggestion = suggestion(name, known.chain(others.iter().copied()));
                    let message = format!(
                        "nothing fills the placeholder {{{name}}}{suggestion}; {{{{{name}}}}} stands for \
                         the text itself"
                    );
                    self.faults.push(place.fault(message));
                }
            }
        }
    }

    fn cases(&mut self) {
        let cases = list(self.root, "case");
        let Some(first) = cases.first() else { return };
        let mut seen = Vec::new();
        for case in cases {
            if let Some(name) = case.get("name") {
                if let Some(text) = name.text().filter(|text| seen.contains(text)) {
                    self.fault(&name.place, format!("there is a case '{text}' already"));
                }
                seen.extend(name.text());
            }
            for key in first.keys() {
                if case.entry(key).is_none() && key != "name" {
                    let message =
                        format!("the case needs a level of '{key}', as the first case has one");
                    self.fault(&case.place, message);
                }
            }
            for (key, entry) in case.entries() {
                if first.entry(key).is_none() && key != "name" {
                    let suggestion = suggestion(key, first.keys());
                    let message = format!(
                        "the first case has no level of '{key}'{suggestion}: every case sets the same factors"
                    );
                    self.fault(&entry.key, message);
                }
            }
        }
    }

    fn factors(&mut self) {
        let used = self.used_factors();
        let set_by_cases: Vec<&str> =
            list(self.root, "case").first().map(Node::keys).unwrap_or_default();
        for (name, entry) in self.root.get("factor").into_iter().flat_map(Node::entries) {
            let levels = entry.node.get("levels");
            let count = levels.map_or(0, |levels| levels.items().len());
            if name == CASE {
                self.fault(&entry.key, "'case' names the cases; call the factor otherwise".into());
            } else if set_by_cases.contains(&name.as_str()) {
                if count > 0 {
                    let message = format!("the cases set '{name}': it has no levels of its own");
                    self.fault(&entry.key, message);
                }
            } else if count == 0 && !self.is_set_by_presets(name) {
                let message = format!(
                    "the factor '{name}' has no levels: write levels = [...], or give some in every preset"
                );
                self.fault(&entry.key, message);
            } else if !used.contains(name) {
                let message = format!(
                    "nothing uses the factor '{name}': write {{{name}}} in a subject, the load or the wire"
                );
                self.fault(&entry.key, message);
            }
        }
    }

    fn is_set_by_presets(&self, factor: &str) -> bool {
        let mut presets = tables(self.root, "presets").peekable();
        presets.peek().is_some()
            && presets
                .all(|(_, preset)| preset.get("levels").and_then(|it| it.get(factor)).is_some())
    }

    /// The factors that a placeholder names, or that decide whether a subject is measured.
    fn used_factors(&self) -> Vec<String> {
        let parts = ["subject", "load", "background", "pool", "wire", "tls", "http2", "serve"];
        let texts = parts.iter().filter_map(|key| self.root.get(key)).flat_map(Node::texts);
        // A misspelled placeholder counts as a use of the factor that it probably means.
        let factor = |name: &str| match self.factors.contains_key(name) {
            true => Some(name.to_owned()),
            false => nearest(name, self.factors.keys().map(String::as_str)).map(str::to_owned),
        };
        let names = texts.flat_map(|(text, _)| setting::placeholders(text));
        let mut used: Vec<String> = names.filter_map(factor).collect();
        for (_, subject) in tables(self.root, "subject") {
            let only = subject.get("only").map(Node::keys).unwrap_or_default();
            used.extend(only.into_iter().map(str::to_owned));
        }
        used
    }

    fn subjects(&mut self) {
        if tables(self.root, "subject").next().is_none() {
            let key = self.root.entry("subject").map_or(&self.root.place, |entry| &entry.key);
            let message = "there is nothing to measure: write a table [subject.NAME]";
            self.faults.push(key.fault(message));
        }
        for (_, subject) in tables(self.root, "subject") {
            let named = |of: &'a Node, key: &str| of.get(key).map(Node::keys).unwrap_or_default();
            let further = ["tls", "http2"].into_iter().filter_map(|key| subject.get(key));
            let further = further.flat_map(|keys| named(keys, "files"));
            let files = named(subject, "files").into_iter().chain(further);
            let own: Vec<&str> =
                OF_SUBJECTS.into_iter().chain(files).chain(named(subject, "find")).collect();
            self.placeholders(subject, &own);
            self.levels(subject.get("only"), false);
        }
        if let Some(flags) = self.root.get("serve") {
            self.placeholders(flags, &OF_SUBJECTS);
        }
    }

    fn loads(&mut self) {
        for part in ["pool", "wire", "tls", "http2"] {
            if let Some(node) = self.root.get(part) {
                self.placeholders(node, &[]);
            }
        }
        self.kinds();
        self.turns();
        let Some(load) = self.root.get("load") else { return };
        for part in [Some(load), self.root.get("background")].into_iter().flatten() {
            if let Some(http) = part.get("http") {
                self.placeholders(http, &OF_HTTP);
                self.pool_of(http);
                self.protocols(http);
                self.pipeline(http);
            }
            for key in ["connects", "tokens"] {
                if let Some(node) = part.get(key) {
                    self.placeholders(node, &[]);
                }
            }
        }
        if let Some(command) = load.get("command") {
            let find = command.get("find").map(Node::keys).unwrap_or_default();
            let own: Vec<&str> = OF_GENERATORS.into_iter().chain(find).collect();
            for key in ["command", "env"] {
                if let Some(node) = command.get(key) {
                    self.placeholders(node, &own);
                }
            }
            let known = self.metric_names();
            for (name, entry) in command.get("metrics").into_iter().flat_map(Node::entries) {
                self.metric_key(name, &entry.key, &known);
            }
        }
    }

    /// Checks that sessions are resumed, and streams opened, only where there can be some.
    fn protocols(&mut self, http: &Node) {
        for (key, switch, protocol) in
            [("tls_resume", "tls", "TLS"), ("streams", "http2", "HTTP/2")]
        {
            if let (Some(entry), None) = (http.entry(key), self.root.entry(switch)) {
                let message = format!(
                    "nothing speaks {protocol} here: write {switch} = true, or {switch} = \"{{factor}}\", at the top of the file"
                );
                self.fault(&entry.key, message);
            }
        }
    }

    /// Checks that nothing is asked for that HTTP/2 does not have.
    fn pipeline(&mut self, http: &Node) {
        if let (Some(entry), Some(_)) = (http.entry("pipeline"), self.root.entry("http2")) {
            let message =
                "HTTP/2 has no pipeline: write streams for the requests that are under way at once";
            self.fault(&entry.key, message.to_owned());
        }
    }

    /// Checks that the load can be driven in turns, if it is to be.
    fn turns(&mut self) {
        let over = self.root.get("phases").and_then(|phases| phases.get("turn_over"));
        for factor in over.map_or(&[][..], Node::items) {
            let Some(name) = factor.text() else { continue };
            self.factor_name(name, &factor.place);
            let parts = ["phases", "presets"].iter().filter_map(|key| self.root.get(key));
            let uses = |(text, _): &(&str, _)| setting::placeholders(text).contains(&name);
            if let Some((_, place)) = parts.flat_map(Node::texts).find(uses) {
                let message =
                    format!("nothing here can depend on '{name}', whose levels take turns");
                self.fault(place, message);
            }
        }
        let Some(turn) = self.root.get("phases").and_then(|phases| phases.entry("turn")) else {
            return;
        };
        let http = self.root.get("load").and_then(|load| load.get("http"));
        let scheduled = ["rate", "connection_rate", "every", "requests"];
        let is_closed =
            http.is_some_and(|http| scheduled.iter().all(|key| http.entry(key).is_none()));
        if !is_closed || self.root.entry("background").is_some() {
            let message = "turns are for [load.http] without 'rate', 'connection_rate', 'every' and 'requests', \
                           and without [background]";
            self.fault(&turn.key, message.to_owned());
        }
        let measure = self.root.get("phases").and_then(|phases| phases.get("measure"));
        for key in ["events", "at_most"] {
            if let Some(entry) = measure.and_then(|measure| measure.entry(key)) {
                let message =
                    format!("with 'turn', windows have the length 'at_least', without '{key}'");
                self.fault(&entry.key, message);
            }
        }
    }

    /// Checks that the kinds of load and subjects fit together.
    fn kinds(&mut self) {
        let servers = &["serve", "command", "peer"][..];
        let (kinds, what) = match self.root.get("load") {
            None => (&["guest"][..], None),
            Some(load) if load.entry("connects").is_some() => (&["waiters"][..], Some("connects")),
            Some(load) if load.entry("tokens").is_some() => (&["pipes"][..], Some("tokens")),
            Some(load) if load.entry("command").is_some() => (servers, Some("command")),
            Some(load) if load.entry("http").is_some() => (servers, Some("http")),
            Some(_) => return,
        };
        let all = ["serve", "command", "peer", "waiters", "pipes", "guest"];
        for (name, subject) in self.root.get("subject").into_iter().flat_map(Node::entries) {
            let has = |keys: &[&str]| keys.iter().any(|key| subject.node.entry(key).is_some());
            if has(&["guest"]) && !self.takes_from_subjects() {
                let message = format!(
                    "nothing is taken from what '{name}' prints: write a table [metric.NAME] with \
                     from = \"subject:/KEY\""
                );
                self.fault(&subject.key, message);
            }
            if !has(&all) || has(kinds) {
                continue;
            }
            let message = match what {
                Some(what) => format!(
                    "the load '{what}' drives subjects with the keys {}, and '{name}' is none",
                    listed(kinds)
                ),
                None => format!(
                    "'{name}' needs a load, [load.http], [load.connects], [load.tokens] or [load.command]: \
                     only subjects with the key 'guest' have none"
                ),
            };
            self.fault(&subject.key, message);
        }
    }

    /// Whether a metric of the experiment is taken from what its subjects print.
    fn takes_from_subjects(&self) -> bool {
        tables(self.root, "metric").any(|(_, metric)| {
            metric.get("from").and_then(Node::text).is_some_and(|it| it.starts_with("subject:"))
        })
    }

    fn pool_of(&mut self, http: &Node) {
        let known = self.pool_names();
        match http.get("pool") {
            Some(pool) => self.name(pool, "pool", &known),
            None if known.len() > 1
                && ["path", "urls", "from_har", "curl"]
                    .iter()
                    .all(|key| http.entry(key).is_none()) =>
            {
                let message =
                    format!("there are several pools: write pool = one of {}", listed(&known));
                self.fault(&http.place, message);
            }
            None => {}
        }
    }

    /// Checks the id, which is the name of a folder and part of links.
    fn id(&mut self) {
        let Some(id) = self.root.get("id") else { return };
        let Some(text) = id.text() else { return };
        if !is_id(text) {
            let message = "the id is the name of a folder: write letters, digits, '-' and '_', and begin \
                           with a letter or digit";
            self.fault(&id.place, message.to_owned());
        }
    }

    fn metrics(&mut self) {
        for (name, entry) in self.root.get("metric").into_iter().flat_map(Node::entries) {
            if metric::built_in(name).is_some() {
                let message = format!("the metric '{name}' is built in; call this one otherwise");
                self.fault(&entry.key, message);
            }
        }
    }

    /// Checks a key that is a metric's name.
    fn metric_key(&mut self, name: &str, place: &Location, known: &[&str]) {
        if !known.contains(&name) {
            let suggestion = suggestion(name, known.iter().copied());
            self.fault(place, format!("no metric is called '{name}'{suggestion}"));
        }
    }

    /// Checks which metrics are counted, and their tolerances.
    fn counted(&mut self) {
        let known = self.metric_names();
        for (name, entry) in self.root.get("counted").into_iter().flat_map(Node::entries) {
            self.metric_key(name, &entry.key, &known);
            if entry.node.number().is_some_and(|tolerance| !(0.0..1.0).contains(&tolerance)) {
                let message =
                    "a tolerance is a share, 0 or more and less than 1; 0.01 stands for 1 %";
                self.fault(&entry.node.place, message.to_owned());
            }
        }
    }

    fn claims(&mut self) {
        let subjects = self.subject_names();
        let mut seen: Vec<&str> = Vec::new();
        for claim in list(self.root, "claim") {
            if let Some(id) = claim.get("id") {
                if let Some(text) = id.text().filter(|text| seen.contains(text)) {
                    self.fault(&id.place, format!("there is a claim '{text}' already"));
                }
                seen.extend(id.text());
            }
            if let Some(effect) = claim.get("effect") {
                self.effect(effect);
            }
            self.levels(claim.get("where"), false);
            self.names(claim.get("also"), "subject", &subjects);
            self.region(claim.get("holds"));
            let known = self.metric_names();
            for (name, entry) in claim.get("given").into_iter().flat_map(Node::entries) {
                self.metric_key(name, &entry.key, &known);
                self.region(Some(&entry.node));
            }
            if let Some(published) = claim.get("published") {
                self.published(published);
            }
        }
    }

    fn effect(&mut self, effect: &Node) {
        const KINDS: [&str; 9] =
            ["value", "ratio", "change", "levels", "exponent", "offered", "knee", "peak", "spread"];
        const NUMERIC: [&str; 4] = ["exponent", "offered", "knee", "peak"];
        for kind in KINDS {
            if let Some(metric) = effect.get(kind) {
                self.metric_name(metric);
            }
        }
        for side in ["of", "against"] {
            if let Some(side) = effect.get(side) {
                self.side(side);
            }
        }
        let Some(over) = effect.get("over") else { return };
        let Some(factor) = over.text() else { return };
        if !self.factor_name(factor, &over.place) {
            return;
        }
        for end in ["from", "to"] {
            if let Some(node) = effect.get(end) {
                self.level_of(factor, node);
            }
        }
        if let (Some(from), Some(to)) = (effect.get("from"), effect.get("to"))
            && level(from) == level(to)
        {
            self.fault(&to.place, "a change has two different levels".to_owned());
        }
        let names = self.factors[factor].iter().any(|level| level.number().is_none());
        if let Some(kind) = NUMERIC.iter().find(|kind| names && effect.entry(kind).is_some()) {
            let message = format!("the levels of '{factor}' are names; '{kind}' needs numbers");
            self.fault(&over.place, message);
        }
    }

    /// Checks one side of a comparison: a name, a list of names, or a table with one.
    fn side(&mut self, side: &Node) {
        let subjects = self.subject_names();
        match side.kind() {
            Type::Text => self.name(side, "subject", &subjects),
            Type::List => {
                if side.items().is_empty() {
                    self.fault(&side.place, "the list of subjects is empty".to_owned());
                }
                self.names(Some(side), "subject", &subjects);
            }
            _ => self.names(side.get("best"), "subject", &subjects),
        }
    }

    fn region(&mut self, region: Option<&Node>) {
        let end = |key: &str| region?.get(key)?.number();
        if let (Some(above), Some(below), Some(region)) = (end("above"), end("below"), region)
            && above > below
        {
            let message = format!("nothing is above {above} and below {below}");
            self.fault(&region.place, message);
        }
    }

    fn published(&mut self, published: &Node) {
        let subjects = self.subject_names();
        for row in published.items().iter().chain(list(published, "rows")) {
            if let Some(subject) = row.get("subject") {
                self.name(subject, "subject", &subjects);
            }
            self.levels(row.get("levels"), true);
        }
    }

    fn figures(&mut self) {
        let subjects = self.subject_names();
        for figure in list(self.root, "figure") {
            if let Some(metric) = figure.get("metric") {
                self.metric_name(metric);
            }
            for node in figure.get("x").into_iter().chain(list(figure, "panels")) {
                if let Some(name) = node.text() {
                    self.factor_name(name, &node.place);
                }
            }
            self.levels(figure.get("where"), false);
            self.names(figure.get("subjects"), "subject", &subjects);
            if let Some(published) = figure.get("published") {
                self.published(published);
            }
        }
    }

    fn presets(&mut self) {
        let (subjects, cases, pools) = (self.subject_names(), self.case_names(), self.pool_names());
        for (_, preset) in tables(self.root, "presets") {
            self.names(preset.get("subjects"), "subject", &subjects);
            self.names(preset.get("cases"), "case", &cases);
            for (name, entry) in preset.get("levels").into_iter().flat_map(Node::entries) {
                if self.factor_name(name, &entry.key) && entry.node.items().is_empty() {
                    let message = format!("the list of levels of '{name}' is empty");
                    self.fault(&entry.node.place, message);
                }
            }
            for (name, entry) in preset.get("only").into_iter().flat_map(Node::entries) {
                if !subjects.contains(&name.as_str()) {
                    let suggestion = suggestion(name, subjects.iter().copied());
                    self.fault(&entry.key, format!("no subject is called '{name}'{suggestion}"));
                }
                for table in entry.node.items() {
                    self.levels(Some(table), false);
                }
            }
            for (name, entry) in preset.get("pool").into_iter().flat_map(Node::entries) {
                if !pools.contains(&name.as_str()) {
                    let suggestion = suggestion(name, pools.iter().copied());
                    self.fault(&entry.key, format!("no pool is called '{name}'{suggestion}"));
                }
                self.placeholders(&entry.node, &[]);
            }
        }
    }
}
