//! Everything that a server can be told, with the defaults.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_http1::HeadLimits;
use drover_http2::Http2Limits;
use drover_mech::accept::wait_queue::Policy;
use drover_mech::accept::{self, Strategy};
use drover_mech::fileio::{self, Backend};
use drover_mech::files::open_pool::OpenPool;
use drover_mech::files::root::Root;
use drover_mech::mechanisms::{self, Mechanism};
use drover_mech::net::{AcceptBatch, MinRate};
use drover_sys::process::OrdinaryUser;
use drover_sys::socket::Address;
#[cfg(doc)]
use drover_sys::socket::ListenOptions;
use drover_sys::unix_listener::UnixListener;
use drover_usage::UsageError;

use crate::access_log::AccessLog;
use crate::acme::{AcmeSettings, ChallengeReader};
use crate::auth::Auth;
use crate::budget::{MemoryBudget, MemoryUse};
use crate::hosts::{HostPattern, HostTable};
use crate::lookup::listings::Listings;
use crate::lookup::revalidate::{Revalidate, RootWatch};
use crate::private_files::OwnFiles;
use crate::proxies::Proxies;
use crate::rules::{Cors, ErrorPage, EtagSource, HeaderRule, Redirect};
use crate::tls::{HttpsPort, TlsListeners, TlsSettings};

/// The default number of threads per process that open files: one or two are enough for a disk.
pub const STAT_THREADS: usize = 2;

/// What is served.
#[derive(Clone, Debug)]
pub enum ContentSource {
    /// The files beneath a directory.
    Directory(Arc<Root>),
    /// So many bytes to every request, without touching a file.
    Fixed(usize),
}

/// What a site serves, and how: each host may have a site of its own.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// What is served.
    pub source: ContentSource,
    /// Whether files and directories whose names begin with a dot are served, beside `.well-known`.
    pub hidden: bool,
    /// Whether a file is sent as `FILE.br`, `FILE.zst` or `FILE.gz` to clients that accept that coding, if there is such
    /// a file and it is not older.
    pub precompressed: bool,
    /// Whether a directory without an index is shown as a list of its files.
    pub listing: bool,
    /// Whether `/about` means `about.html` if there is no `about`.
    pub html_suffix: bool,
    /// The file, by its name beneath the root, that a browser gets in place of a page that is missing.
    pub fallback: Option<String>,
    /// What entity tags are made of.
    pub etag: EtagSource,
    /// Files that are sent with errors.
    pub error_pages: Arc<[ErrorPage]>,
    /// Fields that responses with files have in addition.
    pub headers: Arc<[HeaderRule]>,
    /// Those of them that go ahead, while a file is opened that is not at hand.
    pub early_hints: Arc<[HeaderRule]>,
    /// Which pages of other sites may read responses; `None`: those that may by default.
    pub cors: Option<Arc<Cors>>,
    /// The users who may read what is served; `None`: everybody may.
    pub auth: Option<Arc<Auth>>,
    /// Paths that have moved, in the order in which they are looked through.
    pub redirects: Arc<[Redirect]>,
}

impl SiteSettings {
    /// The defaults.
    #[must_use]
    pub fn new(source: ContentSource) -> SiteSettings {
        SiteSettings {
            source,
            hidden: false,
            precompressed: false,
            listing: false,
            html_suffix: false,
            fallback: None,
            etag: EtagSource::default(),
            error_pages: [].into(),
            headers: [].into(),
            early_hints: [].into(),
            cors: None,
            auth: None,
            redirects: [].into(),
        }
    }

    /// Adds a field that responses with files have.
    pub fn add_header(&mut self, rule: HeaderRule) {
        self.headers = self.headers.iter().cloned().chain([rule]).collect();
    }

    /// Finds whether the files that flags name beneath the root are there.
    ///
    /// # Errors
    /// The flag and the file of the first that cannot be opened.
    pub(crate) fn check_named_files(&self) -> anyhow::Result<()> {
        let Some(root) = self.root() else { return Ok(()) };
        let fallback = self.fallback.iter().map(|name| ("--fallback", name.as_str()));
        let pages = self.error_pages.iter().map(|page| ("--error-page", page.file()));
        for (flag, name) in fallback.chain(pages) {
            if let Err(error) = root.open_file(name.as_bytes()) {
                let root = root.name();
                return Err(UsageError::new(format!(
                    "{flag} {name}: cannot open that file beneath '{root}': {error}"
                ))
                .into());
            }
        }
        Ok(())
    }

    /// The directory whose files are served, if files are.
    pub(crate) fn root(&self) -> Option<&Root> {
        match &self.source {
            ContentSource::Directory(root) => Some(root),
            ContentSource::Fixed(_) => None,
        }
    }
}

/// A site for the requests that name one of some hosts.
#[derive(Clone, Debug)]
pub struct HostSite {
    /// The hosts, at least one.
    pub names: Vec<HostPattern>,
    /// What they get.
    pub site: SiteSettings,
}

/// Everything that a server can be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// What requests get whose host is none of `hosts`; `None`: the status 421. There is this site or one of a host.
    pub site: Option<SiteSettings>,
    /// Sites of their own for some hosts.
    pub hosts: Vec<HostSite>,
    /// The hosts that `site` is for, beside addresses and `localhost`; other requests get the status 421. None: it is for all.
    pub allowed_hosts: Vec<HostPattern>,
    /// The addresses to listen at.
    pub listen: Vec<Listen>,
    /// Sockets that listen already: a service manager has passed them on.
    pub passed: Vec<Arc<OwnedFd>>,
    /// TLS, for the addresses that speak it ([`Listen::is_tls`]); `None`: none does.
    pub tls: Option<Arc<TlsSettings>>,
    /// Which of the bound addresses speak it. Filled in when they are bound.
    pub tls_listeners: TlsListeners,
    /// The certificates that the supervisor gets from a CA; `None`: none. Workers need not know.
    pub acme: Option<Arc<AcmeSettings>>,
    /// Where workers find what they show to a CA; `None`: nothing. Filled in by the supervisor.
    pub challenges: Option<ChallengeReader>,
    /// Where clients are sent to who connect to an address without TLS; `None`: they are served.
    pub https_redirect: Option<HttpsPort>,
    /// Where a server tells how it is and what it has counted (`admin`); `None`: nowhere.
    pub admin: Option<Listen>,
    /// The hosts that requests to `admin` may name beside its own name, addresses and `localhost`; others get the status 421.
    pub admin_hosts: Vec<HostPattern>,
    /// How each worker waits.
    pub mechanism: &'static Mechanism,
    /// The options of the mechanism.
    pub dispatch: mechanisms::MechanismOptions,
    /// Whether connections are accepted only when their first bytes are here
    /// ([`ListenOptions::defer`]).
    pub defer_accept: bool,
    /// How connections come to the workers.
    pub accept: &'static Strategy,
    /// Whether the worker of the processor that a connection comes in on takes it
    /// ([`accept::ListenPlan::by_cpu`]).
    pub by_cpu: bool,
    /// Which waiting worker a connection wakes, for accept strategies with a wait queue.
    pub wake: Policy,
    /// How many connections are accepted per wait.
    pub accept_batch: AcceptBatch,
    /// What moves a file's bytes. `None`: small files are read and sent with their head, large ones
    /// go through the backend that measures best.
    pub files: Option<&'static Backend>,
    /// The options of the file backend. All workers share its threads.
    pub file_options: fileio::FileIoOptions,
    /// The threads that open files that may need the disk; `None`: the workers open files, and wait for
    /// the disk.
    pub openers: Option<Arc<OpenPool>>,
    /// What lists directories, within the memory that lists may have.
    pub listings: Arc<Listings>,
    /// Whether files are opened so that reading leaves their access time as it is, where that is
    /// allowed.
    pub noatime: bool,
    /// Whether the kernel is told that files are read from beginning to end.
    pub advise_sequential: bool,
    /// The user that the process becomes when its addresses are bound and the access log is open, for good.
    pub user: Option<OrdinaryUser>,
    /// Whether the process gives up what serving does not need (landlock(7)): the thread that starts the server, the
    /// threads that it starts from then on, and the log's. They cannot take it back.
    pub sandbox: bool,
    /// What a worker may keep of files it has served, in bytes; 0: nothing.
    pub cache: usize,
    /// The memory that there is for what has no size of its own in this configuration.
    pub memory: MemoryBudget,
    /// How often a kept file is compared with the file system.
    pub revalidate: Revalidate,
    /// Threads that serve; or processes, under a [`Supervisor`](crate::Supervisor).
    pub workers: NonZeroUsize,
    /// Whether each worker stays on a processor of its own.
    pub pin: bool,
    /// How long a request's head may take from its first byte on; `None`: for ever.
    pub header_time_out: Option<Duration>,
    /// How long a connection may be silent between requests, or take nothing of a response.
    pub idle_time_out: Option<Duration>,
    /// How long a request may wait until its file is open, before it is refused; `None`: for ever.
    pub open_time_out: Option<Duration>,
    /// How slowly a client may take a response; `None`: as slowly as it likes.
    pub min_rate: Option<MinRate>,
    /// How many connections there may be at a time, shared out among the workers; `None`: as many as
    /// the limit of descriptors allows when some are left for files. When there are as many, those that
    /// have been idle longest are closed for new ones; if none is idle, new ones wait.
    pub max_connections: Option<NonZeroUsize>,
    /// How many connections a client may have at a time, in each process: an IPv4 address, or an IPv6 network of 64 bits.
    /// Further ones are closed at once. `None`: as many as there may be.
    pub max_per_address: Option<NonZeroU32>,
    /// How long the head of a request may be, and how many fields it may have. A connection's input buffer has the
    /// length of the longest head.
    pub head_limits: HeadLimits,
    /// Where HTTP/2 is spoken, and what its clients may take.
    pub http2: Http2,
    /// After how many requests a connection is closed; `None`: after any number.
    pub max_requests: Option<NonZeroU32>,
    /// The proxies in front of the server, and what they say of clients.
    pub proxies: Proxies,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// The access log: a line for each response; `None`: there is none.
    pub access_log: Option<AccessLog>,
    /// Whether responses have a field `Server-Timing`, which says how long the server took until their head was written.
    pub server_timing: bool,
    /// The file that gets a line per response, with the time of each stage (`trace`).
    pub trace: Option<PathBuf>,
    /// How many bytes of a body a connection hands to the kernel before it is another's turn; `None`: as
    /// many as the processor's caches suggest ([`drover_mech::net::NetOptions::send_budget`]).
    pub send_budget: Option<NonZeroU64>,
    /// How long a worker that has something to do lets further events gather
    /// ([`NetOptions::min_wait`](drover_mech::net::NetOptions::min_wait)).
    pub min_wait: Duration,
    /// The file that the counters are written to at SIGUSR1 and at the end.
    pub counters: Option<PathBuf>,
    /// Whether the counts of waits and events are kept up to date at each wait. With [`Config::admin`] they always are.
    pub counts_events: bool,
    /// The unix(7) socket at which another server takes over the listening sockets; and this one from the server that
    /// runs, if there is one.
    pub take_over: Option<PathBuf>,
    /// The file that the configuration is read from again at a reload, from its folder.
    pub config_file: Option<PathBuf>,
    /// The file that the events of the only worker are written to.
    pub record_events: Option<PathBuf>,
    /// How long a worker spins for each response; `None`: not at all.
    pub spin: Option<Duration>,
    /// Who is told when a root is another directory that a worker may not read.
    pub root_watch: RootWatch,
}

/// Where to listen: at every address of a name, or at a path.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The name as it was given.
    pub name: String,
    /// The addresses of the name, without duplicates. Port 0 takes a free port, one for all addresses
    /// if possible. Addresses that this machine does not have are left out; at least one must be left.
    pub addresses: Vec<SocketAddr>,
    /// The unix(7) socket to listen at in place of addresses.
    pub unix: Option<UnixListener>,
    /// Whether TLS is spoken there, if the server has a certificate. `None`: on every port but 80.
    pub is_tls: Option<bool>,
}

impl Listen {
    /// Where to listen.
    pub fn all(&self) -> impl Iterator<Item = Address> {
        let unix = self.unix.iter().map(|unix| Address::Unix(unix.path.clone()));
        self.addresses.iter().copied().map(Address::Ip).chain(unix)
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen { name: address.to_string(), addresses: vec![address], unix: None, is_tls: None }
    }
}

impl Config {
    /// All sites: that of unknown hosts first if there is one, then those of `hosts` in their order.
    pub fn sites(&self) -> impl Iterator<Item = &SiteSettings> {
        self.site.iter().chain(self.hosts.iter().map(|host| &host.site))
    }

    /// Whether TLS is spoken at an address, of which the user may have said so or not. Otherwise it is on every port but 80, if there is
    /// a certificate.
    pub(crate) fn speaks_tls(&self, address: &Address, is_said: Option<bool>) -> bool {
        let by_port = || address.ip().is_none_or(|address| address.port() != 80);
        self.tls.is_some() && is_said.unwrap_or_else(by_port)
    }

    /// Which of the addresses that are to be bound will speak TLS.
    #[must_use]
    pub fn tls_to_be(&self) -> TlsListeners {
        let mut listeners = TlsListeners::default();
        for listen in &self.listen {
            listen.all().for_each(|it| listeners.push(&it, self.speaks_tls(&it, listen.is_tls)));
        }
        listeners
    }

    /// Whether files are served, and not one body for every request.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.sites().any(|site| matches!(site.source, ContentSource::Directory(_)))
    }

    /// The site of each host, by the number in [`Config::sites`]. An allowed host that has a site of its own gets that.
    ///
    /// # Errors
    /// Two sites are for one host.
    pub(crate) fn host_table(&self) -> anyhow::Result<HostTable> {
        let first = u32::from(self.site.is_some());
        let names = (first..)
            .zip(&self.hosts)
            .flat_map(|(number, host)| host.names.iter().map(move |name| (name, number)));
        let has_own = |name| self.hosts.iter().any(|host| host.names.contains(name));
        let allowed = self.allowed_hosts.iter().filter(|name| !has_own(*name));
        let names = names.chain(allowed.map(|name| (name, 0)));
        HostTable::new(names).map_err(|name| {
            UsageError::new(format!("--host: {name} has two sites; name it once")).into()
        })
    }

    /// The users of each site that is for users alone.
    pub fn users(&self) -> impl Iterator<Item = &Arc<Auth>> {
        self.sites().filter_map(|site| site.auth.as_ref())
    }

    /// The files that flags name and that nobody may be served.
    pub(crate) fn own_files(&self) -> OwnFiles {
        let log = self.access_log.as_ref().and_then(|log| log.path.as_ref());
        let named = [
            ("--config", self.config_file.as_ref()),
            ("--access-log", log),
            ("--counters", self.counters.as_ref()),
            ("--trace", self.trace.as_ref()),
            ("--record-events", self.record_events.as_ref()),
        ];
        let named = named.into_iter().filter_map(|(flag, path)| Some((flag, path?.as_path())));
        let users = self.users().map(|users| ("--auth", users.path()));
        let keys = self.tls.iter().flat_map(|tls| tls.keys()).map(|key| ("--tls-key", key));
        OwnFiles::of(named.chain(users).chain(keys))
    }

    /// The same server on sockets that listen already, and no others.
    pub(crate) fn on(&self, sockets: Vec<Arc<OwnedFd>>) -> Config {
        Config { passed: sockets, listen: Vec::new(), ..self.clone() }
    }

    /// The defaults: one worker on a free port of this machine's loopback address.
    #[must_use]
    pub fn new(source: ContentSource, mechanism: &'static Mechanism) -> Config {
        Config {
            site: Some(SiteSettings::new(source)),
            hosts: Vec::new(),
            allowed_hosts: Vec::new(),
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            passed: Vec::new(),
            tls: None,
            tls_listeners: TlsListeners::default(),
            acme: None,
            challenges: None,
            https_redirect: None,
            admin: None,
            admin_hosts: Vec::new(),
            mechanism,
            dispatch: mechanisms::MechanismOptions::default(),
            defer_accept: true,
            accept: accept::auto(NonZeroUsize::MIN, mechanism),
            by_cpu: false,
            wake: Policy::TaskExclusive,
            accept_batch: AcceptBatch::All,
            files: None,
            file_options: fileio::FileIoOptions::default(),
            openers: Some(Arc::new(OpenPool::new(STAT_THREADS))),
            listings: Listings::new(MemoryBudget::default().of(MemoryUse::Listings)),
            noatime: false,
            advise_sequential: false,
            user: None,
            sandbox: false,
            cache: 64 << 20,
            memory: MemoryBudget::default(),
            revalidate: Revalidate::default(),
            workers: NonZeroUsize::MIN,
            pin: false,
            header_time_out: Some(Duration::from_secs(10)),
            idle_time_out: Some(Duration::from_secs(60)),
            open_time_out: Some(Duration::from_secs(10)),
            min_rate: None,
            max_connections: None,
            max_per_address: None,
            proxies: Proxies::default(),
            head_limits: HeadLimits::default(),
            http2: Http2::default(),
            max_requests: None,
            grace: Duration::from_secs(10),
            access_log: None,
            server_timing: false,
            trace: None,
            send_budget: None,
            min_wait: Duration::ZERO,
            counters: None,
            counts_events: false,
            take_over: None,
            config_file: None,
            record_events: None,
            spin: None,
            root_watch: RootWatch::default(),
        }
    }
}

/// Where HTTP/2 is spoken, and what its clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Whether clients may choose it over TLS (ALPN `h2`, RFC 9113 section 3.2).
    pub over_tls: bool,
    /// Whether clients that know it beforehand may begin with it where TLS is not spoken (RFC 9113 section 3.3).
    pub on_plain_ports: bool,
    /// What a client may take.
    pub limits: Http2Limits,
}

impl Http2 {
    /// Whether it is spoken anywhere.
    pub(crate) fn is_spoken(&self) -> bool {
        self.over_tls || self.on_plain_ports
    }
}

impl Default for Http2 {
    /// Over TLS alone.
    fn default() -> Http2 {
        Http2 { over_tls: true, on_plain_ports: false, limits: Http2Limits::default() }
    }
}
