//! Pages of the site that are sent with an error in place of a line of text.

use std::str::FromStr;

use drover_http1::Status;

/// The statuses that a page may be sent with: those of requests that could be read. Whoever sends something else is no browser.
const STATUSES: &[Status] = &[
    Status::Unauthorized,
    Status::Forbidden,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::InternalServerError,
    Status::NotImplemented,
    Status::ServiceUnavailable,
];

/// A page for the responses with one status: `404=404.html`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    status: Status,
    /// The name of the file beneath the root.
    file: String,
}

impl FromStr for ErrorPage {
    type Err = String;

    fn from_str(text: &str) -> Result<ErrorPage, String> {
        let Some((code, file)) = text.split_once('=').filter(|(_, file)| !file.is_empty()) else {
            return Err("write STATUS=FILE, for example 404=404.html".into());
        };
        let Some(status) = STATUSES.iter().find(|it| it.code().to_string() == code) else {
            let codes: Vec<_> = STATUSES.iter().map(|it| it.code().to_string()).collect();
            return Err(format!("{code}: there are pages for {}", codes.join(", ")));
        };
        let file = file.trim_start_matches('/').to_owned();
        Ok(ErrorPage { status: *status, file })
    }
}

impl ErrorPage {
    /// The name of the file that is sent with `status`, beneath the root; of several, the last.
    pub(crate) fn of(pages: &[ErrorPage], status: Status) -> Option<&[u8]> {
        let page = pages.iter().rfind(|page| page.status == status)?;
        Some(page.file.as_bytes())
    }

    /// The name of the file beneath the root.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_for_a_status_counts() {
        let pages = ["404=a.html", "403=/b/c.html", "404=d=e"].map(|it| it.parse().unwrap());
        assert_eq!(ErrorPage::of(&pages, Status::NotFound), Some(&b"d=e"[..]));
        assert_eq!(ErrorPage::of(&pages, Status::Forbidden), Some(&b"b/c.html"[..]));
        assert_eq!(ErrorPage::of(&pages, Status::ServiceUnavailable), None);
    }

    #[test]
    fn what_is_no_page_is_told_with_what_would_be_one() {
        for (page, what) in [
            ("404.html", "404=404.html"),
            ("404=", "404=404.html"),
            ("200=a", "401, 403, 404, 405, 500, 501, 503"),
            ("0404=a", "there are pages for"),
        ] {
            let error = page.parse::<ErrorPage>().unwrap_err();
            assert!(error.contains(what), "{page:?}: {error}");
        }
    }
}
