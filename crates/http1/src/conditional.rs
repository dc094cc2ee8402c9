//! Validators of a file, and the preconditions a request holds against them.
//!
//! [`evaluate`] follows the precedence of RFC 9110 section 13.2.2 step by step. A date that cannot
//! be read makes its field void, as that RFC wants; an entity tag that cannot be read matches
//! nothing.

use crate::date;

/// A strong entity tag, quotes included, in place: made from what the kernel says of a file.
///
/// Two states of a file get the same tag only if size and modification time agree to the
/// nanosecond. Kernels before 6.13 stamp files with the time of the last tick, so two writes of
/// equal size within one tick (1 to 10 ms) are not told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ETag {
    len: u8,
    bytes: [u8; ETag::CAPACITY],
}

impl ETag {
    /// Two quotes, two dashes, and 16 + 8 + 16 + 16 hexadecimal digits.
    const CAPACITY: usize = 60;

    /// The tag for a file of `size` bytes, modified at `seconds` and `nanoseconds` after the
    /// epoch. With an inode number, a file that replaced another also gets another tag. Without,
    /// copies on several machines can share a tag.
    pub fn new(seconds: i64, nanoseconds: u32, size: u64, inode: Option<u64>) -> Self {
        let mut tag = ETag { len: 0, bytes: [0; ETag::CAPACITY] };
        tag.push(b'"');
        tag.push_hex(seconds as u64, 1);
        tag.push_hex(u64::from(nanoseconds), 8);
        tag.push(b'-');
        tag.push_hex(size, 1);
        if let Some(inode) = inode {
            tag.push(b'-');
            tag.push_hex(inode, 1);
        }
        tag.push(b'"');
        tag
    }

    /// The tag as it stands in a field.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
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

/// What identifies the state of a file; nothing does of a file whose time was never set.
///
/// Images of containers and packages (OSTree, Nix, Bazel) give every file the time 0 or 1, so that a new
/// version of such a file may have the time and the length of the old one. A validator would be a promise that
/// such a file never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag.
    pub etag: Option<ETag>,
    /// `Last-Modified` in whole seconds since the epoch.
    pub modified: Option<u64>,
}

impl Validators {
    /// The validators of a file, from the same numbers as [`ETag::new`].
    pub fn new(seconds: i64, nanoseconds: u32, size: u64, inode: Option<u64>) -> Self {
        /// Times up to this second are those of files whose time was never set, or before 1970.
        const UNSET: u64 = 1;
        let modified = u64::try_from(seconds).ok().filter(|seconds| *seconds > UNSET);
        let etag = modified.map(|_| ETag::new(seconds, nanoseconds, size, inode));
        Validators { etag, modified }
    }

    /// Whether this is the file's tag.
    fn is_tag(&self, opaque: &[u8]) -> bool {
        self.etag.is_some_and(|tag| tag.as_bytes() == opaque)
    }
}

/// A list field of a request. Several lines with the same name are one list (RFC 9110 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListField<'a> {
    /// The value of the field's only line.
    Line(&'a [u8]),
    /// The field has several lines.
    Lines {
        /// The field's name.
        name: &'static str,
        /// The request head in which the lines stand.
        head: &'a [u8],
    },
}

impl<'a> ListField<'a> {
    /// Takes one more line of the field `name`, found in `head`.
    pub(crate) fn take(
        field: &mut Option<ListField<'a>>,
        name: &'static str,
        value: &'a [u8],
        head: &'a [u8],
    ) {
        *field = Some(match field {
            None => ListField::Line(value),
            Some(_) => ListField::Lines { name, head },
        });
    }

    /// The values of the field's lines, in their order.
    pub fn lines(self) -> impl Iterator<Item = &'a [u8]> {
        let (only, name, head) = match self {
            ListField::Line(value) => (Some(value), "", &[][..]),
            ListField::Lines { name, head } => (None, name, head),
        };
        let lines = head.split(|byte| *byte == b'\n').filter_map(move |line| {
            let (found, value) = line.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
        });
        only.into_iter().chain(lines)
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
    file.is_tag(validator) || file.modified.is_some_and(is_date)
}

/// How entity tags are compared (RFC 9110 section 8.8.3.2). A file's tag ([`ETag`]) is strong, so the
/// difference is whether a weak tag of the client can match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether `tags`, a list of entity tags or `*`, has one that matches the file's. A `*` among tags, on a
/// line of its own or not, is no entity tag and matches nothing.
fn matches_any(tags: ListField<'_>, file: &Validators, comparison: Comparison) -> bool {
    tags == ListField::Line(b"*")
        || tags
            .lines()
            .flat_map(tags_of)
            .any(|(weak, opaque)| file.is_tag(opaque) && (!weak || comparison == Comparison::Weak))
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

    fn file() -> Validators {
        Validators::new(784_111_777, 0, 100, None)
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
        let small = ETag::new(0, 1, 0, Some(0));
        assert_eq!(small.as_bytes(), b"\"000000001-0-0\"");
        let large = ETag::new(-1, u32::MAX, u64::MAX, Some(u64::MAX));
        assert_eq!(large.as_bytes().len(), ETag::CAPACITY);
    }

    #[test]
    fn a_change_of_any_number_changes_the_tag() {
        let tag = ETag::new(1, 2, 3, Some(4));
        assert_ne!(tag, ETag::new(0, 2, 3, Some(4)));
        assert_ne!(tag, ETag::new(1, 0, 3, Some(4)));
        assert_ne!(tag, ETag::new(1, 2, 0, Some(4)));
        assert_ne!(tag, ETag::new(1, 2, 3, Some(0)));
        assert_ne!(tag, ETag::new(1, 2, 3, None));
    }

    #[test]
    fn a_file_whose_time_was_never_set_has_no_validators() {
        let none = Validators { etag: None, modified: None };
        for seconds in [i64::MIN, -5, 0, 1] {
            assert_eq!(Validators::new(seconds, 5, 1, Some(7)), none);
        }
        let conditions = |field: &str| {
            let head = format!("GET / HTTP/1.0\r\n{field}\r\n\r\n");
            let request = crate::request::parse(head.as_bytes(), &Default::default());
            evaluate(&request.unwrap().unwrap().conditions, &none, 1_000_000_000)
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
        assert!(Validators::new(2, 0, 1, None).etag.is_some());
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
