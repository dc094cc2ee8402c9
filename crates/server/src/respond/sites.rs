//! The sites of one worker, and which of them a request is for.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use drover_http1::Request;
use drover_http1::coding::ContentCoding;
use drover_mech::files::root::{ListedNames, OpenOptions};
use drover_mech::net::Net;

use crate::auth::Authenticator;
use crate::clock::DateClock;
use crate::config::{Config, ContentSource, SiteSettings};
use crate::exchange::FixedBody;
use crate::hosts::{HostTable, cannot_be_rebound};
use crate::lookup::candidates::NameOptions;
use crate::lookup::files::{FileOptions, SiteFiles};
use crate::lookup::kept::KeptFiles;
use crate::lookup::listings::{ListOptions, Listings, SiteListings};
use crate::rules::{Cors, EtagSource};

/// Bodies up to this length that are not kept are read and sent with their head by one call when the
/// user names no file backend. A read of 1 KiB costs less than the second call that lends
/// the page, one of 16 KiB costs a third more; they cross between 4 and 5 KiB.
const READ_MOST: u64 = 4 * 1024;

/// Files up to this length are kept as bytes, not as descriptors: up to here their copy costs less than
/// the second call, with one hot file as with a thousand (docs/performance.md), and they count half of what a descriptor
/// counts in the cache.
const KEPT_MOST: u64 = 32 * 1024;

/// What a site serves.
pub(crate) enum SiteContent {
    /// Files. Of a file that is not kept, a part of at most `in_memory` bytes is read; a longer part is
    /// left to the file backend.
    Files { files: Box<SiteFiles>, in_memory: u64 },
    /// One body for every request.
    Fixed(Rc<FixedBody>),
}

/// A site, as one worker serves it.
pub(crate) struct ServedSite {
    pub(crate) content: SiteContent,
    /// Which pages of other sites may read it.
    pub(crate) cors: Option<Arc<Cors>>,
    /// The users who may, if not everybody may.
    pub(crate) auth: Option<Box<Authenticator>>,
}

/// All sites of a worker.
pub(crate) struct ServedSites {
    /// As in [`Config::sites`]. At least one.
    pub(crate) all: Vec<ServedSite>,
    /// Which host has which of them; `None`: there is one for all hosts.
    hosts: Option<Box<HostRouting>>,
    /// The number of the site that has answered last, or is answering.
    answering: usize,
    /// What is kept of their files.
    pub(crate) kept: Rc<RefCell<KeptFiles>>,
    /// What lists their directories.
    pub(crate) listings: Arc<Listings>,
}

struct HostRouting {
    table: HostTable,
    others: OtherHosts,
}

/// What requests get for hosts that the table does not have.
enum OtherHosts {
    /// The first site.
    Served,
    /// The first site, if no other site can have the host lead here.
    ServedIfNotRebound,
    /// The status 421.
    Refused,
}

impl OtherHosts {
    fn are_served(&self, host: Option<&[u8]>) -> bool {
        match self {
            OtherHosts::Served => true,
            OtherHosts::ServedIfNotRebound => host.is_none_or(cannot_be_rebound),
            OtherHosts::Refused => false,
        }
    }
}

impl ServedSite {
    /// The site with this number. `kept`: what is kept of all sites.
    fn open(
        settings: &SiteSettings,
        config: &Config,
        (kept, number): (&Rc<RefCell<KeptFiles>>, usize),
        clock: &DateClock,
        net: &Net,
    ) -> anyhow::Result<ServedSite> {
        let content = match &settings.source {
            ContentSource::Fixed(size) => {
                let always = settings.cors.as_ref().map(|cors| cors.always());
                SiteContent::Fixed(Rc::new(FixedBody::new(*size, clock, always)))
            }
            ContentSource::Directory(root) => {
                // A backend that is asked for by name moves every body itself.
                let unless_named = |most| if config.files.is_none() { most } else { 0 };
                let options = file_options(settings, config, unless_named(KEPT_MOST));
                let kept = (Rc::clone(kept), number as u32);
                let files = SiteFiles::new(Arc::clone(root), options, kept, net.now()).context(
                    "cannot hear of changes (--revalidate inotify); raise \
                     fs.inotify.max_user_instances, or use --revalidate 1s",
                )?;
                SiteContent::Files { files: Box::new(files), in_memory: unless_named(READ_MOST) }
            }
        };
        let auth = settings.auth.clone();
        let forwarded = || config.proxies.of_requests();
        let auth = auth.map(|auth| Box::new(Authenticator::new(auth, forwarded())));
        Ok(ServedSite { content, cors: settings.cors.clone(), auth })
    }

    pub(crate) fn files(&mut self) -> Option<&mut SiteFiles> {
        match &mut self.content {
            SiteContent::Files { files, .. } => Some(files),
            SiteContent::Fixed(_) => None,
        }
    }
}

impl ServedSites {
    /// The sites of `config`, for one of `sharers` workers of a process.
    pub(crate) fn open(
        config: &Config,
        sharers: usize,
        clock: &DateClock,
        net: &Net,
    ) -> anyhow::Result<ServedSites> {
        // Half of all descriptors are left to connections.
        let descriptors = drover_sys::process::open_files_limit().soft.unwrap_or(u64::MAX) / 2;
        let kept = KeptFiles::new(config.cache, descriptors / sharers as u64);
        let all = config
            .sites()
            .enumerate()
            .map(|(number, site)| ServedSite::open(site, config, (&kept, number), clock, net))
            .collect::<anyhow::Result<_>>()?;
        let hosts = match config.hosts.is_empty() && config.allowed_hosts.is_empty() {
            true => None,
            false => Some(Box::new(HostRouting {
                table: config.host_table()?,
                others: match (&config.site, config.allowed_hosts.is_empty()) {
                    (None, _) => OtherHosts::Refused,
                    (Some(_), true) => OtherHosts::Served,
                    (Some(_), false) => OtherHosts::ServedIfNotRebound,
                },
            })),
        };
        let listings = Arc::clone(&config.listings);
        Ok(ServedSites { all, hosts, answering: 0, kept, listings })
    }

    /// The site that a request is for; `None`: it is for a host that is not served.
    #[inline]
    pub(crate) fn of(&mut self, request: &Request<'_>) -> Option<&mut ServedSite> {
        if let Some(hosts) = &self.hosts {
            self.answering = match request.host.and_then(|host| hosts.table.find(host)) {
                Some(number) => number as usize,
                None if hosts.others.are_served(request.host) => 0,
                None => return None,
            };
        }
        Some(self.answering())
    }

    /// The site that is answering.
    pub(crate) fn answering(&mut self) -> &mut ServedSite {
        &mut self.all[self.answering]
    }
}

fn file_options(settings: &SiteSettings, config: &Config, kept_most: u64) -> FileOptions {
    let siblings: &[_] = if settings.precompressed { &ContentCoding::SUFFIXES } else { &[] };
    FileOptions {
        revalidate: config.revalidate,
        root_watch: config.root_watch.clone(),
        own_files: config.own_files(),
        etag: settings.etag,
        hidden: settings.hidden,
        names: Arc::new(NameOptions {
            listing: settings.listing,
            html_suffix: settings.html_suffix,
            fallback: settings.fallback.as_ref().map(|name| name.as_bytes().into()),
        }),
        error_pages: Arc::clone(&settings.error_pages),
        headers: Arc::clone(&settings.headers),
        early_hints: Arc::clone(&settings.early_hints),
        cors: settings.cors.clone(),
        redirects: Arc::clone(&settings.redirects),
        listings: settings.listing.then(|| SiteListings {
            listings: Arc::clone(&config.listings),
            options: ListOptions {
                names: if settings.hidden { ListedNames::All } else { ListedNames::Visible },
                noatime: config.noatime,
                valid_for: config.revalidate.after,
            },
        }),
        how: OpenOptions {
            noatime: config.noatime,
            sequential: config.advise_sequential,
            siblings,
            digest: settings.etag == EtagSource::Content,
            content: if config.cache > 0 { kept_most } else { 0 },
        },
    }
}
