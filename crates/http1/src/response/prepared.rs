//! A response that is sent again and again: only its date changes.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use super::write::{Common, ConnectionField, push_head};
use crate::date::DateText;
use crate::field_list::FieldList;
use crate::fields::Fields;
use crate::status::Status;

/// The head of the usual response, to a plain GET over HTTP/1.1 on a connection that persists, with or without the body behind it.
#[derive(Debug)]
pub struct PreparedResponse {
    /// The head, and the body behind it if that is kept.
    bytes: RefCell<Rc<[u8]>>,
    head_len: usize,
    /// Where the date's text begins.
    date: usize,
    /// The second of the date in the head.
    second: Cell<u64>,
    has_body: bool,
}

impl PreparedResponse {
    /// Prepares a response with the status 200 and these fields. `date` is that of `second`, since the epoch. `append_body` puts the
    /// body behind the head and returns whether it could.
    pub fn new(
        server: &str,
        (date, second): (&DateText, u64),
        fields: &FieldList,
        append_body: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> PreparedResponse {
        let mut bytes = Vec::new();
        let common = Common { server, date, connection: ConnectionField::Implied };
        let date = push_head(&mut bytes, Status::Ok, &common, fields);
        let head_len = bytes.len();
        let has_body = append_body(&mut bytes);
        if !has_body {
            bytes.truncate(head_len);
        }
        let (bytes, second) = (RefCell::new(bytes.into()), Cell::new(second));
        PreparedResponse { bytes, head_len, date, second, has_body }
    }

    /// The bytes with the date of this second. Bytes that are still being sent keep their date.
    #[inline]
    pub fn dated(&self, date: &DateText, second: u64) -> Ref<'_, Rc<[u8]>> {
        if self.second.replace(second) != second {
            let mut bytes = self.bytes.borrow_mut();
            Rc::make_mut(&mut bytes)[self.date..][..date.len()].copy_from_slice(date);
        }
        self.bytes.borrow()
    }

    /// The bytes as they were sent last.
    pub fn bytes(&self) -> Ref<'_, Rc<[u8]>> {
        self.bytes.borrow()
    }

    /// The length of the head, its closing empty line included.
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// Whether the body is kept behind the head.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// The body, if it is kept; otherwise it is empty.
    #[must_use]
    pub fn body(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), |bytes| &bytes[self.head_len..])
    }

    /// Bytes of head and body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// The fields of the head, as they were sent last.
    #[must_use]
    pub fn fields(&self) -> FieldList {
        Fields::of(&self.bytes.borrow()[..self.head_len]).collect()
    }

    /// The head of `bytes` without its closing empty line, and what follows it: fields may be put between.
    #[must_use]
    pub fn split<'b>(&self, bytes: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        bytes.split_at(self.head_len - b"\r\n".len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date;

    #[test]
    fn only_the_date_changes_and_what_is_being_sent_stays() {
        let fields = FieldList::from_iter([("A", &b"b"[..])]);
        let dates = [0, 1].map(date::format);
        let prepared = PreparedResponse::new("s", (&dates[0], 0), &fields, |out| {
            out.extend_from_slice(b"body");
            true
        });
        let before = Rc::clone(&prepared.dated(&dates[0], 0));
        let after = Rc::clone(&prepared.dated(&dates[1], 1));
        for (bytes, date) in [(&before, &dates[0]), (&after, &dates[1])] {
            let date = str::from_utf8(date).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nServer: s\r\nDate: {date}\r\nA: b\r\n\r\n");
            assert_eq!(**bytes, *[head.as_bytes(), b"body"].concat());
            assert_eq!(prepared.head_len(), head.len());
            assert_eq!(
                prepared.split(bytes),
                (&head.as_bytes()[..head.len() - 2], &b"\r\nbody"[..])
            );
        }
        let names: Vec<_> = prepared.fields().iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, ["Server", "Date", "A"]);
        assert_eq!((&*prepared.body(), prepared.has_body()), (&b"body"[..], true));
    }
}
