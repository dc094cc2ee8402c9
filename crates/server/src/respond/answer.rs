//! What a worker answers: from a request to a decided [`Exchange`]. No protocol's bytes are known here.

use std::rc::Rc;

use drover_http1::conditional::ListField;
use drover_http1::{FieldList, Method, Refusal, Request, Status, Version};
use drover_mech::net::Net;

use crate::auth::AuthOutcome;
use crate::clock::DateClock;
use crate::exchange::{Content, Exchange};
use crate::lookup::files::{Lookup, LookupContext, SiteFiles, WantedFile};
use crate::lookup::listings::form::WantedList;
use crate::lookup::pending::PendingAnswer;
use crate::respond::response::refused_method;
use crate::respond::sites::{ServedSite, ServedSites, SiteContent};
use crate::rules::Cors;
use crate::status::statistics::WorkerCounters;

/// To a request for a host that no site is for (RFC 9110 section 15.5.20).
const UNKNOWN_HOST: Refusal =
    Refusal { status: Status::MisdirectedRequest, reason: "this host is not served here" };

/// Whether an exchange is decided.
pub(crate) enum Answered {
    /// The response is.
    Ready,
    /// Something has to be found out first, after which the request is to be answered anew. These fields may go ahead.
    Wait(Rc<PendingAnswer>, FieldList),
}

/// The sites of a worker, and what they answer by.
pub(crate) struct SiteState<'w> {
    pub(crate) clock: DateClock,
    pub(crate) sites: ServedSites,
    pub(crate) counters: &'w WorkerCounters,
}

impl SiteState<'_> {
    /// Decides what is answered to a request.
    pub(crate) fn answer(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        net: &Net,
    ) -> Answered {
        let SiteState { clock, sites, counters } = self;
        let Some(ServedSite { content, cors, auth }) = sites.of(request) else {
            exchange.refuse(UNKNOWN_HOST);
            return Answered::Ready;
        };
        let cors = cors.as_deref();
        let refused = refused_method(request.method).or_else(|| exchange.requester.refused());
        if let Some(refusal) = refused {
            exchange.user = auth.as_mut().and_then(|auth| auth.recognize(request, net.now()));
            return self.refuse(refusal, request, exchange, net);
        }
        if request.method == Method::Options {
            cors.into_iter().for_each(|cors| cors.tell(request, &mut exchange.fields));
            exchange.tell_options(cors.is_some_and(|cors| cors.is_granted_preflight(request)));
            return Answered::Ready;
        }
        if let Some(auth) = auth {
            let asks = (exchange.requester.key, exchange.client);
            match auth.check(request, asks, net.now()) {
                AuthOutcome::Granted(user) => exchange.user = Some(user),
                AuthOutcome::Refused(refusal) => {
                    return self.refuse(refusal, request, exchange, net);
                }
                AuthOutcome::Pending(answer) => {
                    return Answered::Wait(answer, FieldList::default());
                }
            }
        }
        match content {
            SiteContent::Fixed(fixed) => {
                cors.into_iter().for_each(|cors| cors.tell_own(request, &mut exchange.fields));
                exchange.status = Status::Ok;
                exchange.content = Content::Fixed(Rc::clone(fixed));
                Answered::Ready
            }
            SiteContent::Files { files, in_memory } => {
                let context = LookupContext { net, clock, counters };
                match answer_from_files(files, *in_memory, cors, request, exchange, &context) {
                    Ok(answered) => answered,
                    Err(refusal) => self.refuse(refusal, request, exchange, net),
                }
            }
        }
    }

    /// Sends a client to the same place at `port` of HTTPS, if a site is there for the host.
    #[cold]
    pub(crate) fn redirect_to_https(
        &mut self,
        request: &Request<'_>,
        port: u16,
        exchange: &mut Exchange,
    ) -> Answered {
        let is_served = self.sites.of(request).is_some();
        match request.host.filter(|host| is_served && !host.is_empty()) {
            Some(host) => exchange.move_to_https(host, port, request.path),
            None => exchange.refuse(UNKNOWN_HOST),
        }
        Answered::Ready
    }

    /// Refuses a request: with the site's page for that, or a line of text.
    #[cold]
    fn refuse(
        &mut self,
        refusal: Refusal,
        request: &Request<'_>,
        exchange: &mut Exchange,
        net: &Net,
    ) -> Answered {
        let SiteState { clock, sites, counters } = self;
        let ServedSite { content, cors, .. } = sites.answering();
        if let Some(cors) = cors {
            cors.tell(request, &mut exchange.fields);
        }
        if let SiteContent::Files { files, in_memory } = content {
            let context = LookupContext { net, clock, counters };
            let codings = accepted_codings(request);
            match files.error_page(refusal, codings, &mut exchange.requester, &context) {
                Ok(Some(page)) => {
                    exchange.send_error_page(&page, refusal.status, *in_memory);
                    return Answered::Ready;
                }
                Ok(None) => {}
                Err(open) => return Answered::Wait(open, FieldList::default()),
            }
        }
        exchange.refuse(refusal);
        Answered::Ready
    }
}

/// The fields that go ahead of a file, if they `may`.
fn early_hints(files: &SiteFiles, open: &PendingAnswer, may: bool) -> FieldList {
    if may { files.early_hints(open) } else { FieldList::default() }
}

/// Decides what is answered by what the files of a site have at the path.
///
/// # Errors
/// The request is to be refused.
fn answer_from_files(
    files: &mut SiteFiles,
    in_memory: u64,
    cors: Option<&Cors>,
    request: &Request<'_>,
    exchange: &mut Exchange,
    context: &LookupContext<'_>,
) -> Result<Answered, Refusal> {
    let tell_cors = |exchange: &mut Exchange| {
        cors.into_iter().for_each(|cors| cors.tell(request, &mut exchange.fields));
    };
    let wanted = WantedFile {
        path: request.path,
        codings: accepted_codings(request),
        is_page: files.tells_pages_apart() && is_for_a_page(request),
        list: match files.may_list(request.path) {
            true => WantedList::of(request),
            false => WantedList::default(),
        },
    };
    let awaited = exchange.requester.awaited.as_ref();
    let has_waited = awaited.is_some_and(|it| it.name().is_some());
    match files.look_up(wanted, &mut exchange.requester, context) {
        Lookup::Refused(refusal) => return Err(refusal),
        Lookup::Pending(open) => {
            let hints = early_hints(files, &open, !has_waited && may_have_hints(request));
            return Ok(Answered::Wait(open, hints));
        }
        Lookup::Ready(entry) if is_plain(request) && entry.usual().is_some() => {
            // What is prepared has the other fields of CORS already.
            cors.into_iter().for_each(|cors| cors.tell_own(request, &mut exchange.fields));
            exchange.status = Status::Ok;
            exchange.content = Content::Prepared(entry);
        }
        Lookup::Ready(entry) => {
            tell_cors(exchange);
            exchange.send_file(&entry, request, context.clock.seconds(), in_memory);
        }
        Lookup::Redirect { name, query } => {
            tell_cors(exchange);
            exchange.redirect(name, query);
        }
        Lookup::Moved(status, location) => {
            tell_cors(exchange);
            exchange.move_to(status, &location);
        }
        Lookup::Listing(found) => {
            tell_cors(exchange);
            exchange.send_listing(found);
        }
    }
    Ok(Answered::Ready)
}

/// By what the form of a file is chosen. Several parts of a file are always parts of the file as it is: in a response
/// in parts, `Content-Encoding` would speak of all of them together.
fn accepted_codings<'a>(request: &Request<'a>) -> Option<ListField<'a>> {
    let several = request.range.is_some_and(|range| range.contains(&b','));
    request.accept_encoding.filter(|_| !several)
}

/// Whether a browser asks for a page to show: it says so (Fetch Metadata Request Headers), or says that it takes HTML.
fn is_for_a_page(request: &Request<'_>) -> bool {
    match (request.field("Sec-Fetch-Mode"), request.field("Accept")) {
        (Some(mode), _) => mode == b"navigate",
        (None, Some(accept)) => accept.windows(9).any(|it| it.eq_ignore_ascii_case(b"text/html")),
        (None, None) => false,
    }
}

/// Whether a browser that loads a page asks, in a version that knows interim responses: programs seldom expect these, though
/// they must (RFC 9110 section 15.2), and RFC 8297 section 3 advises to send hints only to clients that are known to take them.
fn may_have_hints(request: &Request<'_>) -> bool {
    request.method == Method::Get
        && request.version != Version::Http10
        && request.field("Sec-Fetch-Mode") == Some(b"navigate")
}

/// Whether the response is the whole file, without conditions.
fn is_plain(request: &Request<'_>) -> bool {
    request.method == Method::Get && request.range.is_none() && request.conditions.is_empty()
}
