//! Validators of a file, and the preconditions a request holds against them.
//!
//! [`evaluate`] follows the precedence of RFC 9110 section 13.2.2 step by step. A date that cannot
//! be read makes its field void, as that RFC wants; an entity tag that cannot be read matches
//! nothing.

use crate::coding::ContentCoding;
use crate::date;
pub use crate::fields::ListField;

/// An entity tag, quotes included, in place.
///
/// A tag never holds the inode number: equal files on two machines have equal tags, and a tag shows nothing of the
/// machine. A tag of a stored form ends with the name of the form's coding, since each form needs a tag of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ETag {
    weak: bool,
    len: u8,
    bytes: [u8; ETag::CAPACITY],
}

impl ETag {
    /// `W/`, two quotes, four dashes, 16 + 8 + 16 + 16 + 8 hexadecimal digits and the longest name of a coding.
    const CAPACITY: usize = 76;

    /// The strong tag of bytes with this digest.
    pub fn of_content(digest: u128, coding: Option<ContentCoding>) -> ETag {
        let mut tag = ETag::begin(false);
        for half in [(digest >> 64) as u64, digest as u64] {
            tag.push_hex(half, 16);
        }
        tag.end(coding)
    }

    /// The tag of a file by its times and its length. `now` is the current second.
    ///
    /// The tag is strong only if the file was last changed in any way within [`SETTLED_AFTER`] seconds of its
    /// modification, and that time is over. Other bytes under the same time and length then have a later change time,
    /// which no system call sets, and their tag is weak: `cp -p`, rsync and archives set the time of modification.
    pub fn of_times(file: &FileTimes, coding: Option<ContentCoding>, now: u64) -> ETag {
        let mut tag = ETag::begin(!file.is_settled(now));
        let (seconds, nanoseconds) = file.modified;
        tag.push_hex(seconds as u64, 1);
        tag.push_hex(u64::from(nanoseconds), 8);
        tag.push(b'-');
        tag.push_hex(file.size, 1);
        if !file.has_time() {
            // Nothing else tells two versions of equal length apart.
            let (seconds, nanoseconds) = file.changed;
            tag.push(b'-');
            tag.push_hex(seconds as u64, 1);
            tag.push_hex(u64::from(nanoseconds), 8);
        }
        tag.end(coding)
    }

    /// The tag as it is written in a field.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether the tag is weak: equal tags do not promise equal bytes.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// The quoted part.
    fn opaque(&self) -> &[u8] {
        &self.as_bytes()[if self.weak { 2 } else { 0 }..]
    }

    fn begin(weak: bool) -> ETag {
        let mut tag = ETag { weak, len: 0, bytes: [0; ETag::CAPACITY] };
        tag.push_all(if weak { b"W/\"" } else { b"\"" });
        tag
    }

    fn end(mut self, coding: Option<ContentCoding>) -> ETag {
        if let Some(coding) = coding {
            self.push(b'-');
            self.push_all(coding.name().as_bytes());
        }
        self.push(b'"');
        self
    }

    fn push_all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    fn push_hex(&mut self, number: u64, least_digits: u32) {
        let digits = (16 - number.leading_zeros() / 4).max(least_digits);
        for place in (0..digits).rev() {
            self.push(b"0123456789abcdef"[(number >> (4 * place)) as usize & 15]);
        }
    }
}

impl std::fmt::Debug for ETag {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

/// How many seconds after a file's modification its times count as settled: all later changes of the file move its
/// change time beyond that.
pub const SETTLED_AFTER: u64 = 2;

/// What the kernel says of a file's state. Times are seconds and nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    /// The length in bytes.
    pub size: u64,
    /// When the bytes were last modified, or what somebody has set that time to (`st_mtime`).
    pub modified: (i64, u32),
    /// When the file was last changed in any way, by the kernel's clock (`st_ctime`).
    pub changed: (i64, u32),
}

impl FileTimes {
    /// Whether the file has a time. Images of containers and packages (OSTree, Nix, Bazel) give every file the time
    /// 0 or 1.
    fn has_time(&self) -> bool {
        self.modified.0 > 1
    }

    /// When the times are settled, in seconds since the epoch; `None`: they never are.
    #[must_use]
    pub fn settled_at(&self) -> Option<u64> {
        let (seconds, nanoseconds) = self.modified;
        let limit = (seconds.checked_add(SETTLED_AFTER as i64)?, nanoseconds);
        let may_settle = self.has_time() && self.changed <= limit;
        // One second more: the limit is in the middle of its second.
        may_settle.then(|| limit.0 as u64 + 1)
    }

    fn is_settled(&self, now: u64) -> bool {
        self.settled_at().is_some_and(|at| at <= now)
    }
}

/// What identifies the state of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The entity tag.
    pub etag: Option<ETag>,
    /// `Last-Modified` in whole seconds since the epoch.
    pub modified: Option<u64>,
}

impl Validators {
    /// The validators of a file by its times and its length. `now` is the current second.
    ///
    /// A file whose time was never set has no `Last-Modified`: a new version may have the old one's time.
    pub fn of_times(file: &FileTimes, coding: Option<ContentCoding>, now: u64) -> Self {
        let modified = file.has_time().then_some(file.modified.0 as u64);
        Validators { etag: Some(ETag::of_times(file, coding, now)), modified }
    }

    /// Whether this is the file's tag, weak or not.
    fn is_tag(&self, opaque: &[u8]) -> bool {
        self.etag.is_some_and(|tag| tag.opaque() == opaque)
    }

    /// Whether this is the file's tag, and the tag is strong.
    fn is_strong_tag(&self, opaque: &[u8]) -> bool {
        self.etag.is_some_and(|tag| !tag.weak && tag.opaque() == opaque)
    }
}

/// The precondition fields of a request, as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// `If-Match`: go on only if the file is one of these.
    pub if_match: Option<ListField<'a>>,
    /// `If-None-Match`: go on only if the file is none of these.
    pub if_none_match: Option<ListField<'a>>,
    /// `If-Modified-Since`: go on only if the file is newer.
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`: go on only if the file is not newer.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `If-Range`: honour `Range` only if the file is this one.
    pub if_range: Option<&'a [u8]>,
}

impl Conditions<'_> {
    /// Whether the request is unconditional.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }
}

/// How the preconditions of a GET or HEAD turn out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// Answer as if there were no preconditions; a range may be honoured.
    Proceed,
    /// Answer with the whole file: `If-Range` does not hold. Means [`PreconditionOutcome::Proceed`] if there
    /// is no range.
    IgnoreRange,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    PreconditionFailed,
}

/// Evaluates the preconditions of a GET or HEAD for a file that exists. `now` is the second of the
/// response's `Date`.
pub fn evaluate(conditions: &Conditions<'_>, file: &Validators, now: u64) -> PreconditionOutcome {
    if let Some(tags) = conditions.if_match {
        if !matches_any(tags, file, Comparison::Strong) {
            return PreconditionOutcome::PreconditionFailed;
        }
    } else if let Some(limit) = conditions.if_unmodified_since.and_then(date::parse)
        && file.modified.is_some_and(|modified| modified > limit)
    {
        return PreconditionOutcome::PreconditionFailed;
    }
    if let Some(tags) = conditions.if_none_match {
        if matches_any(tags, file, Comparison::Weak) {
            return PreconditionOutcome::NotModified;
        }
    } else if let Some(since) = conditions.if_modified_since.and_then(date::parse)
        && file.modified.is_some_and(|modified| modified <= since)
    {
        return PreconditionOutcome::NotModified;
    }
    match conditions.if_range {
        Some(validator) if !range_applies(validator, file, now) => PreconditionOutcome::IgnoreRange,
        _ => PreconditionOutcome::Proceed,
    }
}

/// `If-Range` takes one entity tag, compared strongly, or a date that matches exactly and is a strong
/// validator (RFC 9110 section 13.1.5). A date is strong if its second is over at `now` (section 8.8.2.2):
/// within the second of a modification, another one would leave the date as it is.
fn range_applies(validator: &[u8], file: &Validators, now: u64) -> bool {
    let is_date = |modified| modified < now && date::parse(validator) == Some(modified);
    file.is_strong_tag(validator) || file.modified.is_some_and(is_date)
}

/// How entity tags are compared (RFC 9110 section 8.8.3.2): strongly, only two strong tags match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether `tags`, a list of entity tags or `*`, has one that matches the file's. A `*` among tags, on a
/// line of its own or not, is no entity tag and matches nothing.
fn matches_any(tags: ListField<'_>, file: &Validators, comparison: Comparison) -> bool {
    let is_match = |(weak, opaque): (bool, &[u8])| match comparison {
        Comparison::Strong => !weak && file.is_strong_tag(opaque),
        Comparison::Weak => file.is_tag(opaque),
    };
    tags == ListField::Line(b"*") || tags.lines().flat_map(tags_of).any(is_match)
}

/// The entity tags of one line: whether each is weak, and its quoted part. Ends before the first
/// element that is not an entity tag.
fn tags_of(line: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (weak, opaque, after) = next_tag(rest)?;
        rest = after;
        Some((weak, opaque))
    })
}

/// The first entity tag of a list: whether it is weak, its quoted part, and what follows. Tags may
/// contain commas, so the list cannot be split at them.
fn next_tag(list: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let start = list.iter().position(|byte| !b" \t,".contains(byte))?;
    let list = &list[start..];
    let (weak, quoted) = match list.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, list),
    };
    let inside = quoted.strip_prefix(b"\"")?;
    let end = inside.iter().position(|byte| *byte == b'"')? + 2;
    let (opaque, after) = quoted.split_at(end);
    Some((weak, opaque, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const TAG: &str = "\"2ebc98a100000000-64\"";

    /// Long after any file of these tests was modified.
    const NOW: u64 = 1_000_000_000;

    fn written_at(seconds: i64) -> FileTimes {
        FileTimes { size: 100, modified: (seconds, 0), changed: (seconds, 0) }
    }

    fn file() -> Validators {
        Validators::of_times(&written_at(784_111_777), None, NOW)
    }

    /// Evaluates the fields given as `Name: value` lines, long after the file was modified.
    fn outcome(fields: &[(&str, &str)]) -> PreconditionOutcome {
        outcome_at(1_000_000_000, fields)
    }

    fn outcome_at(now: u64, fields: &[(&str, &str)]) -> PreconditionOutcome {
        let head = fields.iter().fold("GET / HTTP/1.0\r\n".to_string(), |head, (name, value)| {
            head + name + ": " + value + "\r\n"
        }) + "\r\n";
        let request = crate::request::parse(head.as_bytes(), &Default::default());
        evaluate(&request.unwrap().unwrap().conditions, &file(), now)
    }

    #[test]
    fn tags_have_a_fixed_form_and_room_for_the_largest_numbers() {
        assert_eq!(file().etag.unwrap().as_bytes(), TAG.as_bytes());
        let digest = ETag::of_content(0xab << 64 | 5, Some(ContentCoding::Gzip));
        assert_eq!(digest.as_bytes(), b"\"00000000000000ab0000000000000005-gzip\"");
        let largest = (-1, u32::MAX);
        let file = FileTimes { size: u64::MAX, modified: largest, changed: largest };
        let large = ETag::of_times(&file, Some(ContentCoding::Zstd), NOW);
        assert!(large.is_weak() && large.as_bytes().len() <= ETag::CAPACITY);
    }

    #[test]
    fn a_change_of_length_time_or_coding_changes_the_tag() {
        let file = written_at(1000);
        let tag = |file: FileTimes, coding| ETag::of_times(&file, coding, NOW).opaque().to_vec();
        let before = tag(file, None);
        assert_ne!(before, tag(FileTimes { size: 101, ..file }, None));
        assert_ne!(before, tag(FileTimes { modified: (1000, 1), ..file }, None));
        assert_ne!(before, tag(FileTimes { modified: (1001, 0), ..file }, None));
        for coding in ContentCoding::ALL {
            assert_ne!(before, tag(file, Some(coding)));
            assert_ne!(ETag::of_content(7, None), ETag::of_content(7, Some(coding)));
        }
    }

    /// Whoever got a strong tag got it when the file had settled, so that other bytes put in its place with the same
    /// time have a change time by which their tag is weak.
    #[test]
    fn a_tag_by_times_is_strong_only_while_nothing_changed_after_the_modification() {
        let is_weak = |modified, changed, now| {
            let file = FileTimes { size: 100, modified, changed };
            ETag::of_times(&file, None, now).is_weak()
        };
        assert!(!is_weak((1000, 5), (1000, 5), 1003), "written once");
        assert!(is_weak((1000, 5), (1000, 5), 1002), "just written");
        assert!(!is_weak((1000, 5), (1002, 5), 1003), "written and renamed");
        assert!(is_weak((1000, 5), (1002, 6), NOW), "its time was set, or its mode later");
        assert!(is_weak((2000, 0), (1000, 0), 1003), "from the future");
        assert!(is_weak((i64::MAX, 0), (1000, 0), u64::MAX), "from the last of all seconds");
        for seconds in [i64::MIN, -5, 0, 1] {
            assert!(is_weak((seconds, 0), (seconds, 0), NOW), "{seconds}");
        }
        let (strong, weak) =
            (written_at(1000), FileTimes { changed: (5000, 0), ..written_at(1000) });
        let [strong, weak] = [strong, weak].map(|it| ETag::of_times(&it, None, NOW));
        assert_eq!(strong.opaque(), weak.opaque());
        assert_eq!(weak.as_bytes(), [b"W/", strong.as_bytes()].concat());
    }

    #[test]
    fn a_weak_tag_is_none_for_if_match_and_if_range() {
        let file = FileTimes { changed: (784_111_999, 0), ..written_at(784_111_777) };
        let weak = Validators::of_times(&file, None, NOW);
        let conditions = |field: &str| {
            let head = format!("GET / HTTP/1.0\r\n{field}\r\n\r\n");
            let request = crate::request::parse(head.as_bytes(), &Default::default());
            evaluate(&request.unwrap().unwrap().conditions, &weak, NOW)
        };
        for sent in [TAG.to_owned(), format!("W/{TAG}")] {
            for (name, expected) in [
                ("If-Match", PreconditionOutcome::PreconditionFailed),
                ("If-None-Match", PreconditionOutcome::NotModified),
                ("If-Range", PreconditionOutcome::IgnoreRange),
            ] {
                assert_eq!(conditions(&format!("{name}: {sent}")), expected, "{name}: {sent}");
            }
        }
    }

    #[test]
    fn a_file_whose_time_was_never_set_has_no_date_and_a_weak_tag() {
        for seconds in [i64::MIN, -5, 0, 1] {
            let file = written_at(seconds);
            let changed = FileTimes { changed: (77, 0), ..file };
            let of = |file: &FileTimes| Validators::of_times(file, None, NOW);
            assert_eq!(of(&file).modified, None);
            assert!(of(&file).etag.unwrap().is_weak());
            assert_ne!(of(&file), of(&changed), "only the time of the change tells");
        }
        assert_eq!(Validators::of_times(&written_at(2), None, NOW).modified, Some(2));
    }

    #[test]
    fn a_file_without_validators_matches_no_tag_and_no_date() {
        let none = Validators::default();
        let conditions = |field: &str| {
            let head = format!("GET / HTTP/1.0\r\n{field}\r\n\r\n");
            let request = crate::request::parse(head.as_bytes(), &Default::default());
            evaluate(&request.unwrap().unwrap().conditions, &none, NOW)
        };
        for (field, expected) in [
            ("If-Match: *", PreconditionOutcome::Proceed),
            ("If-Match: \"\"", PreconditionOutcome::PreconditionFailed),
            ("If-None-Match: *", PreconditionOutcome::NotModified),
            ("If-None-Match: \"\"", PreconditionOutcome::Proceed),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", PreconditionOutcome::Proceed),
            ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", PreconditionOutcome::Proceed),
            ("If-Range: Thu, 01 Jan 1970 00:00:01 GMT", PreconditionOutcome::IgnoreRange),
            ("If-Range: \"\"", PreconditionOutcome::IgnoreRange),
        ] {
            assert_eq!(conditions(field), expected, "{field}");
        }
    }

    #[test]
    fn no_condition_proceeds() {
        assert_eq!(outcome(&[]), PreconditionOutcome::Proceed);
    }

    #[test]
    fn if_none_match_compares_weakly_over_a_list() {
        let weak = format!("W/{TAG}");
        let list = format!("\"a,b\", W/\"c\" ,, {TAG}");
        for tags in [TAG, "*", &weak, &list] {
            assert_eq!(outcome(&[("If-None-Match", tags)]), PreconditionOutcome::NotModified);
        }
        let unquoted = TAG.trim_matches('"');
        for tags in ["\"a\"", "", unquoted, "\"", "a, *", "\"x, "] {
            assert_eq!(outcome(&[("If-None-Match", tags)]), PreconditionOutcome::Proceed, "{tags}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        for others in [&["\"a\""][..], &["", "\"b\", \"c\""], &["\"unclosed"]] {
            for place in 0..=others.len() {
                let mut tags = others.to_vec();
                tags.insert(place, TAG);
                for name in ["If-None-Match", "if-none-match"] {
                    let mut fields: Vec<_> = tags.iter().map(|tags| (name, *tags)).collect();
                    fields.insert(1, ("X-If-None-Match", "\"d\""));
                    assert_eq!(outcome(&fields), PreconditionOutcome::NotModified, "{fields:?}");
                }
                let fields: Vec<_> = tags.iter().map(|tags| ("If-Match", *tags)).collect();
                assert_eq!(outcome(&fields), PreconditionOutcome::Proceed, "{fields:?}");
            }
        }
        let others = [("If-Match", "\"a\""), ("If-Match", "*")];
        assert_eq!(outcome(&others), PreconditionOutcome::PreconditionFailed);
        let others = others.map(|(_, tags)| ("If-None-Match", tags));
        assert_eq!(outcome(&others), PreconditionOutcome::Proceed);
    }

    #[test]
    fn if_match_compares_strongly() {
        let weak = format!("W/{TAG}");
        let list = format!("\"a\",{TAG}");
        for tags in [TAG, "*", &list] {
            assert_eq!(outcome(&[("If-Match", tags)]), PreconditionOutcome::Proceed);
        }
        for tags in ["\"a\"", &weak, ""] {
            assert_eq!(outcome(&[("If-Match", tags)]), PreconditionOutcome::PreconditionFailed);
        }
    }

    #[test]
    fn dates_decide_when_there_are_no_tags() {
        let since = |date| outcome(&[("If-Modified-Since", date)]);
        assert_eq!(since(EARLIER), PreconditionOutcome::Proceed);
        assert_eq!(since(MODIFIED), PreconditionOutcome::NotModified);
        assert_eq!(since(LATER), PreconditionOutcome::NotModified);
        assert_eq!(since("yesterday"), PreconditionOutcome::Proceed);
        let unless = |date| outcome(&[("If-Unmodified-Since", date)]);
        assert_eq!(unless(EARLIER), PreconditionOutcome::PreconditionFailed);
        assert_eq!(unless(MODIFIED), PreconditionOutcome::Proceed);
        assert_eq!(unless("yesterday"), PreconditionOutcome::Proceed);
    }

    #[test]
    fn tags_take_precedence_over_dates() {
        let other = "\"other\"";
        let fields = [("If-None-Match", other), ("If-Modified-Since", LATER)];
        assert_eq!(outcome(&fields), PreconditionOutcome::Proceed);
        let fields = [("If-Match", TAG), ("If-Unmodified-Since", EARLIER)];
        assert_eq!(outcome(&fields), PreconditionOutcome::Proceed);
        let fields = [("If-Match", other), ("If-None-Match", TAG)];
        assert_eq!(outcome(&fields), PreconditionOutcome::PreconditionFailed);
        let fields = [("If-Match", TAG), ("If-None-Match", TAG)];
        assert_eq!(outcome(&fields), PreconditionOutcome::NotModified);
        let fields = [("If-Range", other), ("If-None-Match", TAG)];
        assert_eq!(outcome(&fields), PreconditionOutcome::NotModified);
    }

    #[test]
    fn if_range_wants_the_strong_tag_or_the_exact_date() {
        let weak = format!("W/{TAG}");
        let range = |validator| outcome(&[("If-Range", validator)]);
        assert_eq!(range(TAG), PreconditionOutcome::Proceed);
        assert_eq!(range(MODIFIED), PreconditionOutcome::Proceed);
        for validator in [weak.as_str(), "\"other\"", EARLIER, LATER, "", "*"] {
            assert_eq!(range(validator), PreconditionOutcome::IgnoreRange, "{validator}");
        }
    }
    #[test]
    fn if_range_takes_a_date_only_when_its_second_is_over() {
        let modified = file().modified.unwrap();
        let at = |now, validator| outcome_at(now, &[("If-Range", validator)]);
        assert_eq!(at(modified + 1, MODIFIED), PreconditionOutcome::Proceed);
        // The file may change once more within this second; or its clock is ahead of ours.
        for now in [modified, modified - 1] {
            assert_eq!(at(now, MODIFIED), PreconditionOutcome::IgnoreRange);
            assert_eq!(at(now, TAG), PreconditionOutcome::Proceed);
        }
    }
}
