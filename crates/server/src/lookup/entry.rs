//! An entry of a worker's cache: one open file with everything that a response says of it.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use drover_http1::coding::{self, ContentCoding};
use drover_http1::conditional::{ETag, FileTimes, ListField, Validators};
use drover_http1::response::PreparedResponse;
use drover_http1::{FieldList, mime};
use drover_mech::files::root::{ExpectedName, OpenFile, Sibling, Stamp};
use drover_mech::files::served::{FileSystem, ServedFile};
use drover_sys::reserve;

use crate::SERVER;
use crate::clock::DateClock;
use crate::lookup::packed_head::PackedHead;
use crate::lookup::watch::WatchedPath;
use crate::rules::{AddedFields, EtagSource};

/// One open file with everything a response says of it.
pub(crate) struct FileEntry {
    pub(crate) source: EntrySource,
    pub(crate) len: u64,
    pub(crate) validators: Validators,
    pub(crate) content_type: Cow<'static, str>,
    /// The fields that rules add.
    pub(crate) added: Rc<FieldList>,
    /// The coding that the bytes are in; `None`: the file as it is.
    pub(crate) coding: Option<ContentCoding>,
    /// Whether `Accept-Encoding` decides if this or another form of the file is sent.
    pub(crate) varies: bool,
    /// The forms that the file may be stored in beside itself, whether there are such files or not.
    pub(crate) forms: Vec<StoredForm>,
    /// The name under which the file was opened.
    pub(crate) name: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// What the kernel knows of the open file without asking anybody.
    file_system: FileSystem,
    /// The watched path to the file, if the file is watched.
    pub(crate) watched: Option<WatchedPath>,
    /// The turn in which the open file was last asked for, and seen to be as it was.
    pub(crate) looked: Cell<Instant>,
    /// The bytes that it costs to keep the entry, without the descriptor.
    pub(crate) cost: usize,
    /// The bytes of a short file, until the response is prepared.
    pub(crate) content: Option<Vec<u8>>,
    /// The digest of `content`, if the tag is to be made of it.
    digest: Option<u128>,
    /// Whether the file system does not report the file's length: the bytes are those of one moment, and the entry answers
    /// only who has asked for it.
    pub(crate) unmeasured: bool,
    /// The head of the usual response over HTTP/2, once it was asked for.
    packed: OnceCell<PackedHead>,
    /// When the tag by the file's times becomes a strong one: the entry is made again then.
    settles: Option<Instant>,
}

/// When and for which site an entry is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryContext {
    pub(crate) now: Instant,
    /// The second of `now`, since the epoch.
    pub(crate) second: u64,
    pub(crate) etag: EtagSource,
}

/// A form in which a file may be stored beside itself, in a content coding.
pub(crate) struct StoredForm {
    pub(crate) name: Box<[u8]>,
    /// The stamp of the file with that name; `None`: there was none.
    pub(crate) stamp: Option<Stamp>,
    /// `None`: not to be sent. The form is missing, or older than the file: it may hold what the file held before.
    entry: Option<Rc<FileEntry>>,
}

/// Where an entry's bytes are, and its usual response if one was prepared.
pub(crate) enum EntrySource {
    /// Behind the head of the usual response.
    Memory(PreparedResponse),
    /// In the file.
    File(Rc<ServedFile>, Option<PreparedResponse>),
}

impl FileEntry {
    /// The entry of an open file and its forms; `added`: what the user's rules say.
    pub(crate) fn new(
        mut open: OpenFile,
        name: &[u8],
        added: AddedFields,
        context: EntryContext,
    ) -> FileEntry {
        let siblings = std::mem::take(&mut open.siblings);
        let AddedFields { content_type, coding, fields } = added;
        let plain_name =
            coding.and_then(|it| name.strip_suffix(it.suffix().as_bytes())).unwrap_or(name);
        let content_type = content_type.map_or_else(|| mime::of(plain_name).into(), Cow::Owned);
        let mut entry = FileEntry::of(open, name, (content_type, coding), Rc::new(fields), context);
        if coding.is_none() {
            let form = |it| StoredForm::new(it, &entry, context);
            entry.forms = siblings.into_iter().filter_map(form).collect();
        }
        entry.varies = entry.forms.iter().any(|form| form.entry.is_some());
        entry
    }

    /// The entry of one open file.
    fn of(
        open: OpenFile,
        name: &[u8],
        (content_type, coding): (Cow<'static, str>, Option<ContentCoding>),
        added: Rc<FieldList>,
        context: EntryContext,
    ) -> FileEntry {
        let OpenFile { fd, stamp, content, digest, unmeasured, file_system, .. } = open;
        let len = match &content {
            Some(content) if unmeasured => content.len() as u64,
            _ => stamp.len,
        };
        let (validators, settles) = match unmeasured {
            true => (Validators::default(), None),
            false => validators(&stamp, coding, context),
        };
        FileEntry {
            source: EntrySource::File(Rc::new(fd), None),
            len,
            validators,
            content_type,
            added,
            coding,
            varies: false,
            forms: Vec::new(),
            name: name.into(),
            stamp,
            file_system,
            watched: None,
            looked: Cell::new(context.now),
            cost: size_of::<FileEntry>() + name.len(),
            content,
            digest,
            unmeasured,
            packed: OnceCell::new(),
            settles,
        }
    }

    /// The form of `entry` that goes to a client with this `Accept-Encoding`.
    pub(crate) fn form_for<'e>(
        entry: &'e Rc<FileEntry>,
        accept: Option<ListField<'_>>,
    ) -> &'e Rc<FileEntry> {
        if !entry.varies {
            return entry;
        }
        let stored = || entry.forms.iter().filter_map(|form| form.entry.as_ref());
        let lengths = stored().filter_map(|form| Some((form.coding?, form.len)));
        let coding = coding::choose(accept, entry.len, lengths);
        stored().find(|form| coding.is_some() && form.coding == coding).unwrap_or(entry)
    }

    /// The entry itself, and those of the forms that are sent.
    pub(crate) fn with_forms(&self) -> impl Iterator<Item = &FileEntry> {
        std::iter::once(self).chain(self.forms.iter().filter_map(|form| form.entry.as_deref()))
    }

    /// The entries of the forms that are sent, as long as nobody else has them.
    pub(crate) fn forms_mut(&mut self) -> impl Iterator<Item = &mut FileEntry> {
        self.forms.iter_mut().filter_map(|form| form.entry.as_mut().and_then(Rc::get_mut))
    }

    /// How many descriptors the entry keeps.
    pub(crate) fn descriptors(&self) -> usize {
        self.with_forms().filter(|it| matches!(it.source, EntrySource::File(..))).count()
    }

    /// Whether the open file is still as it was when it was opened: neither written to nor removed. Never waits.
    ///
    /// # Errors
    /// `WouldBlock`: this cannot be known without waiting.
    pub(crate) fn try_is_as_it_was(&self) -> io::Result<bool> {
        let EntrySource::File(file, _) = &self.source else { return Ok(true) };
        match self.file_system.stamp(file.as_fd()) {
            Ok(stamp) => Ok(stamp == self.stamp),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The bytes to send from memory, if they are those of one state of the file. The tag is made of them from now on.
    pub(crate) fn take_content(&mut self) -> Option<Vec<u8>> {
        let content = self.content.take()?;
        // A file that was written to while it was read may give bytes of two states.
        if !self.unmeasured && !self.file_is_as_it_was() {
            return None;
        }
        if let Some(digest) = self.digest {
            self.validators.etag = Some(ETag::of_content(digest, self.coding));
            self.settles = None;
        }
        Some(content)
    }

    /// Whether the tags of the file and its forms are still what they would be for an entry made at `now`.
    pub(crate) fn tags_are_current(&self, now: Instant) -> bool {
        self.with_forms().all(|it| it.settles.is_none_or(|at| now < at))
    }

    /// Whether the open file is known to be as it was when it was opened.
    pub(crate) fn file_is_as_it_was(&self) -> bool {
        self.try_is_as_it_was().unwrap_or(false)
    }

    /// Prepares the usual response; with the body, if it is short and the file has not changed. `always`: the fields that all
    /// responses of the site have in addition.
    pub(crate) fn prepare(&mut self, clock: &DateClock, always: Option<&FieldList>) {
        // Twice: once behind its head, and once where it is kept.
        let has_room = |content: &Vec<u8>| reserve::probe(2 * content.len()).is_ok();
        let content = self.take_content().filter(has_room);
        let EntrySource::File(file, _) = &self.source else { return };
        let file = Rc::clone(file);
        let mut usual = self.usual_response(clock, always, |bytes| {
            bytes.extend_from_slice(content.as_deref().unwrap_or_default());
            content.is_some() || self.len == 0
        });
        if content.is_some() && reserve::holds(&usual.bytes()) {
            // Many clients may wait for it, and the reserve is for all.
            usual = self.usual_response(clock, always, |_| false);
        }
        self.cost += self.watched.as_ref().map_or(0, WatchedPath::cost) + usual.size();
        self.source = if usual.has_body() {
            EntrySource::Memory(usual)
        } else {
            EntrySource::File(file, Some(usual))
        };
        self.forms_mut().for_each(|form| form.prepare(clock, always));
    }

    /// The usual response of the entry. `append_body` puts the body behind its head, if it can.
    fn usual_response(
        &self,
        clock: &DateClock,
        always: Option<&FieldList>,
        append_body: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> PreparedResponse {
        let mut fields = always.cloned().unwrap_or_default();
        self.tell_whole(clock.seconds(), &mut fields);
        let now = (clock.date(), clock.seconds());
        PreparedResponse::new(SERVER, now, &fields, append_body)
    }

    /// Adds the fields of a response with all of the file. `now`: the second of its date.
    pub(crate) fn tell_whole(&self, now: u64, fields: &mut FieldList) {
        fields
            .content_type(&self.content_type)
            .content_encoding(self.coding)
            .content_length(self.len)
            .validators(&self.validators, now)
            .varies_by_coding(self.varies)
            .push_all(&self.added)
            .accept_ranges();
    }

    /// The names of the file and its forms, and what they led to.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], Option<Stamp>)> {
        let forms = self.forms.iter().map(|form| (&*form.name, form.stamp));
        std::iter::once((&*self.name, Some(self.stamp))).chain(forms)
    }

    /// The same, for another thread.
    pub(crate) fn expected_names(&self) -> Vec<ExpectedName> {
        let owned = |(name, stamp): (&[u8], _)| ExpectedName { name: name.into(), stamp };
        self.names().map(owned).collect()
    }

    /// The usual response, as HTTP/1 has it: with the body, if that is in memory.
    pub(crate) fn usual(&self) -> Option<&PreparedResponse> {
        match &self.source {
            EntrySource::Memory(usual) => Some(usual),
            EntrySource::File(_, usual) => usual.as_ref(),
        }
    }

    /// The head of the usual response as HTTP/2 has it, if the response is prepared.
    pub(crate) fn packed_head(&self) -> Option<&PackedHead> {
        let usual = self.usual()?;
        Some(self.packed.get_or_init(|| PackedHead::new(usual)))
    }
}

impl StoredForm {
    /// `None`: the suffix is none of a coding.
    fn new(sibling: Sibling, whole: &FileEntry, context: EntryContext) -> Option<StoredForm> {
        let Sibling { suffix, file } = sibling;
        let coding = ContentCoding::ALL.into_iter().find(|coding| coding.suffix() == suffix)?;
        let name: Box<[u8]> = [&whole.name, suffix.as_bytes()].concat().into();
        let stamp = file.as_ref().map(|file| file.stamp);
        let current = file.filter(|file| is_current(&file.stamp, &whole.stamp));
        let entry = current.map(|file| {
            let (content_type, added) = (whole.content_type.clone(), Rc::clone(&whole.added));
            let entry = FileEntry::of(file, &name, (content_type, Some(coding)), added, context);
            Rc::new(FileEntry { varies: true, ..entry })
        });
        Some(StoredForm { name, stamp, entry })
    }
}

/// The validators of an open file by its times, and when its tag becomes a strong one if it is not yet.
fn validators(
    stamp: &Stamp,
    coding: Option<ContentCoding>,
    context: EntryContext,
) -> (Validators, Option<Instant>) {
    let modified = (stamp.modified, stamp.modified_nanos);
    let times = FileTimes { size: stamp.len, modified, changed: stamp.changed };
    let all = Validators::of_times(&times, coding, context.second);
    if context.etag == EtagSource::Off {
        return (Validators { etag: None, ..all }, None);
    }
    let wait = times.settled_at().and_then(|at| at.checked_sub(context.second));
    let wait = wait.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    (all, wait.and_then(|wait| context.now.checked_add(wait)))
}

/// How much later than its form a file may have been put in its place by whatever copied both.
const COPIED_WITHIN: i64 = 60;

/// Whether a form holds what the file holds, as far as their times tell. Tools that write forms give them the file's time, or
/// leave them a later one. A form with a later time is an old one all the same if the file has been put in its place since:
/// an earlier version, with its own earlier time, may have come back.
fn is_current(form: &Stamp, whole: &Stamp) -> bool {
    let time = |stamp: &Stamp| (stamp.modified, stamp.modified_nanos);
    time(form) == time(whole)
        || (time(form) > time(whole) && form.changed.0 + COPIED_WITHIN >= whole.changed.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_current_unless_its_file_is_younger_or_was_put_back() {
        let stamp = |modified, changed| Stamp {
            len: 1,
            modified,
            modified_nanos: 0,
            inode: 1,
            device: 1,
            changed: (changed, 0),
        };
        let is = |form, whole| is_current(&form, &whole);
        assert!(is(stamp(100, 100), stamp(90, 90)), "written behind its file");
        assert!(is(stamp(90, 100), stamp(90, 90)), "with the time of its file");
        assert!(is(stamp(90, 100), stamp(90, 9000)), "and the file was only touched otherwise");
        assert!(is(stamp(95, 1000), stamp(90, 1030)), "both were copied, the form first");
        assert!(!is(stamp(80, 100), stamp(90, 90)), "older than its file");
        assert!(!is(stamp(100, 100), stamp(50, 9000)), "an earlier version came back");
    }
}
