//! The response to a request for a directory that is shown.

use drover_http1::Status;

use crate::exchange::{Content, Exchange};
use crate::lookup::listings::FoundListing;

impl Exchange {
    /// Answers a request for a directory: its list, or for HEAD the fields of one. HEAD may leave the length out
    /// (RFC 9110 section 9.3.2), and does so where the list has not been made.
    pub(super) fn send_listing(&mut self, found: FoundListing) {
        let fields = self.answer(Status::Ok).content_type(found.form.content_type()).nosniff();
        if let Some(bytes) = &found.bytes {
            fields.content_length(bytes.as_bytes().len() as u64);
        }
        fields
            .push("Vary", b"Accept")
            .push("Cache-Control", b"no-cache")
            .push("Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'");
        self.content = found.bytes.map_or(Content::None, Content::ProcessWide);
    }
}
