//! The flags of `drover serve` that each host may have of its own: which files are served, and how responses look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use drover_mech::files::root::Symlinks;
use drover_server::{
    Auth, ContentSource, EtagSource, HeaderRule, OpenedFiles, Redirect, SiteSettings,
};

use super::response::{ResponseFlags, SERVING};

/// The group of flags for HTTPS in the help.
pub(in crate::cli::serve) const HTTPS: &str = "HTTPS";

/// The flags that always have a value.
pub(in crate::cli::serve) const WITH_DEFAULT: [&str; 2] = ["etag", "symlinks"];

/// Flags of a site.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct SiteFlags {
    /// Serve dotfiles too
    ///
    /// Without this flag, of such names only those in /.well-known/ are served
    #[arg(help_heading = SERVING)]
    #[arg(long)]
    pub(in crate::cli::serve) hidden: bool,

    /// Send FILE.br, FILE.zst or FILE.gz in place of FILE, if it is there, to clients that accept that coding
    ///
    /// Of the forms that a client likes most, the shortest is sent. A form that is older than FILE is not
    /// used, because it may hold what FILE held before.
    #[arg(help_heading = SERVING)]
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli::serve) precompressed: bool,

    /// Show the files of a directory that has no index.html
    ///
    /// Browsers get a page, programs that accept application/json alone get JSON. At most 10,000 names are
    /// shown; those that begin with a dot only with --hidden.
    #[arg(help_heading = SERVING)]
    #[arg(long)]
    pub(in crate::cli::serve) listing: bool,

    /// Let /about mean about.html where there is no file 'about'
    ///
    /// about.html also comes before a folder 'about'; /about/ is the folder.
    #[arg(help_heading = SERVING)]
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli::serve) html_suffix: bool,

    /// Send FILE to browsers that ask for a page that does not exist: the page of an application that
    /// handles its paths itself
    ///
    /// FILE is a name beneath ROOT, such as index.html. Scripts, images and the like that do not exist are
    /// still answered with 404.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "FILE", hide_short_help = true, value_parser = NonEmptyStringValueParser::new())]
    pub(in crate::cli::serve) fallback: Option<String>,

    /// What ETags are made of: file contents, modification times, or no ETags
    ///
    /// 'content': a hash of the bytes for files that Drover caches in memory; larger files use time and length. 'mtime': time
    /// and length for all files. Equal files on several servers have equal ETags.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "SOURCE", default_value = "content")]
    pub(in crate::cli::serve) etag: EtagFlag,

    /// Add a field to the responses with files that match a pattern; may be given several times
    ///
    /// For example '/assets/** Cache-Control: max-age=31536000, immutable'. A pattern without a slash, such as
    /// *.html, is one over the last part of the name, in any folder. Of rules for one field, the last that
    /// matches counts. Content-Type takes the place of the type that the suffix tells. Content-Encoding (br, zstd, gzip)
    /// is for files that are stored compressed, for example '*.js.gz Content-Encoding: gzip'.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    pub(in crate::cli::serve) header: Vec<HeaderRule>,

    /// Send clients elsewhere: FROM TO, or FROM TO STATUS; may be given several times
    ///
    /// For example '/old /new', or '/blog/* https://blog.example.org/* 302'. The status is 301 without it.
    #[allow(rustdoc::bare_urls, reason = "it is a help text")]
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    pub(in crate::cli::serve) redirect: Vec<Redirect>,

    #[command(flatten)]
    pub(in crate::cli::serve) response: ResponseFlags,

    /// Which symbolic links beneath ROOT are followed; others are a 404
    ///
    /// 'inside': those whose relative path stays beneath ROOT. 'any': all, wherever they lead. Whoever can make a link
    /// beneath ROOT can then have the server send every file that it may read; the sandbox lets it read all. Links in
    /// the path of ROOT itself are always followed.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "WHICH", default_value = "inside")]
    pub(in crate::cli::serve) symlinks: SymlinksFlag,

    /// Serve HTTPS with this certificate chain (PEM)
    ///
    /// The server's own certificate comes first. Repeat the flag for other hosts: a client gets the certificate for the host that
    /// it names, or the first. The files are read again at SIGHUP. Certificates of Let's Encrypt are in fullchain.pem and
    /// privkey.pem.
    #[arg(help_heading = HTTPS)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) tls_cert: Vec<PathBuf>,

    /// Private key of --tls-cert (PEM)
    #[arg(help_heading = HTTPS)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) tls_key: Vec<PathBuf>,
}

/// The values of `--etag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum EtagFlag {
    Content,
    Mtime,
    Off,
}

impl From<EtagFlag> for EtagSource {
    fn from(flag: EtagFlag) -> EtagSource {
        match flag {
            EtagFlag::Content => EtagSource::Content,
            EtagFlag::Mtime => EtagSource::Times,
            EtagFlag::Off => EtagSource::Off,
        }
    }
}

/// The values of `--symlinks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum SymlinksFlag {
    Never,
    Inside,
    Any,
}

impl From<SymlinksFlag> for Symlinks {
    fn from(flag: SymlinksFlag) -> Symlinks {
        match flag {
            SymlinksFlag::Never => Symlinks::Never,
            SymlinksFlag::Inside => Symlinks::Inside,
            SymlinksFlag::Any => Symlinks::Any,
        }
    }
}

/// The files of users that sites name, each read once.
pub(in crate::cli::serve) struct UserFiles<'r> {
    /// The directories that are served: a file of users must lie beneath none of them.
    roots: &'r [PathBuf],
    /// What a supervisor has read.
    opened: &'r OpenedFiles,
    read: BTreeMap<PathBuf, Arc<Auth>>,
}

impl<'r> UserFiles<'r> {
    pub(in crate::cli::serve) fn beside(
        roots: &'r [PathBuf],
        opened: &'r OpenedFiles,
    ) -> UserFiles<'r> {
        UserFiles { roots, opened, read: BTreeMap::new() }
    }

    fn read(&mut self, path: &Path) -> anyhow::Result<Arc<Auth>> {
        if let Some(auth) = self.read.get(path) {
            return Ok(Arc::clone(auth));
        }
        let auth = match self.opened.text(path) {
            Some(text) => Auth::of(path, text.to_owned())?,
            None => Auth::read(path, self.roots)?,
        };
        let auth = Arc::new(auth);
        self.read.insert(path.to_owned(), Arc::clone(&auth));
        Ok(auth)
    }
}

impl SiteFlags {
    /// Sets a flag, by its long name, as if it had not been given. Flags that always have a value keep it.
    pub(in crate::cli::serve) fn take_away(&mut self, name: &str) {
        match name {
            "fallback" => self.fallback = None,
            "header" => self.header.clear(),
            "redirect" => self.redirect.clear(),
            "tls-cert" => self.tls_cert.clear(),
            "tls-key" => self.tls_key.clear(),
            _ => self.response.take_away(name),
        }
    }

    /// What these flags make of a site with this content.
    ///
    /// # Errors
    /// A file of users that cannot be taken, two rules for one field of CORS.
    pub(in crate::cli::serve) fn settings(
        self,
        source: ContentSource,
        users: &mut UserFiles<'_>,
    ) -> anyhow::Result<SiteSettings> {
        Ok(SiteSettings {
            hidden: self.hidden,
            precompressed: self.precompressed,
            listing: self.listing,
            html_suffix: self.html_suffix,
            fallback: self.fallback,
            etag: self.etag.into(),
            cors: self.response.cors(&self.header)?.map(Arc::new),
            auth: self.response.auth.as_ref().map(|path| users.read(path)).transpose()?,
            early_hints: self.response.hints().collect(),
            headers: self.response.header_rules(self.header).into(),
            error_pages: self.response.error_page.into(),
            redirects: self.redirect.into(),
            ..SiteSettings::new(source)
        })
    }
}
