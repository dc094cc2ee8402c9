//! The flags of `drover serve` that say what responses have beside files.

use std::path::PathBuf;

use drover_server::{
    AllowedOrigin, CachePolicy, Config, Cors, EarlyHint, ErrorPage, HeaderRule, private_to_users,
    security_headers,
};
use drover_usage::UsageError;

/// The group of these flags in the help.
pub(in crate::cli::serve) const SERVING: &str = "Serving";

/// Flags about errors and fields of responses.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct ResponseFlags {
    /// Send FILE with the status of an error; may be given several times
    ///
    /// For example 404=404.html, a name beneath ROOT. There are pages for 401, 403, 404, 405, 500, 501 and 503.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "STATUS=FILE", hide_short_help = true)]
    pub(in crate::cli::serve) error_page: Vec<ErrorPage>,

    /// The Content-Type of files by the end of their names: 'log,out=text/plain; charset=utf-8'
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "EXT=TYPE", hide_short_help = true, value_parser = HeaderRule::of_types)]
    types: Vec<HeaderRule>,

    /// How long clients may keep files that match a pattern: PATTERN POLICY; may be given several times
    ///
    /// For example '/assets/** immutable', '*.html no-cache', '*.png 1h'. A policy is 'immutable' (a year, for names
    /// that change with their content), 'no-cache' (ask each time), 'no-store', a time, or a value of Cache-Control.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    pub(in crate::cli::serve) cache_control: Vec<CachePolicy>,

    /// Have browsers guess no types, tell other sites little of where visitors come from, and show files in no frame of
    /// another site
    #[arg(help_heading = SERVING)]
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli::serve) security_headers: bool,

    /// Let pages of ORIGIN read what is served, or of every site: '*'; may be given several times (CORS)
    ///
    /// For example https://app.example.org. Preflights are answered too.
    #[allow(rustdoc::bare_urls, reason = "it is a help text")]
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "ORIGIN", hide_short_help = true)]
    pub(in crate::cli::serve) cors: Vec<AllowedOrigin>,

    /// Serve only users with a password that FILE has: lines USER:HASH, as 'htpasswd -B' or argon2 make them
    ///
    /// By Basic authentication: without HTTPS, passwords go over the network in clear text. FILE must not lie
    /// beneath ROOT. It is read again at SIGHUP. Responses have 'Cache-Control: private' unless a rule says otherwise.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(in crate::cli::serve) auth: Option<PathBuf>,

    /// Tell browsers what a page needs while it is opened: PATTERN LINK; may be given several times (103 Early Hints)
    ///
    /// For example '*.html </style.css>; rel=preload; as=style'. Sent ahead only if the file is not at hand, and only to
    /// browsers that load a page; the final response has the Link too.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    pub(in crate::cli::serve) early_hints: Vec<EarlyHint>,
}

impl ResponseFlags {
    /// Sets a flag, by its long name, as if it had not been given.
    pub(in crate::cli::serve) fn take_away(&mut self, name: &str) {
        match name {
            "error-page" => self.error_page.clear(),
            "types" => self.types.clear(),
            "cache-control" => self.cache_control.clear(),
            "cors" => self.cors.clear(),
            "auth" => self.auth = None,
            "early-hints" => self.early_hints.clear(),
            _ => {}
        }
    }

    /// All rules for fields; `header` are those that the user has written out, which win.
    pub(in crate::cli::serve) fn header_rules(&self, header: Vec<HeaderRule>) -> Vec<HeaderRule> {
        let security = self.security_headers.then(security_headers).into_iter().flatten();
        let private = self.auth.as_ref().map(|_| private_to_users());
        let cache = self.cache_control.iter().cloned().map(HeaderRule::from);
        let cache = cache.map(|rule| if self.auth.is_some() { rule.for_users() } else { rule });
        // The last rule counts that sets a field.
        let types = self.types.iter().cloned();
        let named = security.chain(private).chain(types).chain(cache);
        named.chain(self.hints()).chain(header).collect()
    }

    /// The rules that go ahead of files.
    pub(in crate::cli::serve) fn hints(&self) -> impl Iterator<Item = HeaderRule> {
        self.early_hints.iter().cloned().map(HeaderRule::from)
    }

    /// Which pages of other sites may read responses with these fields.
    ///
    /// # Errors
    /// If a rule of `header` says so too: browsers refuse a response that has the field twice.
    pub(in crate::cli::serve) fn cors(
        &self,
        header: &[HeaderRule],
    ) -> anyhow::Result<Option<Cors>> {
        const FIELD: &str = "Access-Control-Allow-Origin";
        if !self.cors.is_empty() && header.iter().any(|rule| rule.is_for(FIELD)) {
            anyhow::bail!(UsageError::new(format!(
                "--cors: --header sets {FIELD} too, and browsers take it once; leave one of them out"
            )));
        }
        Ok(Cors::new(&self.cors))
    }
}

/// Who may read what a server of `config` serves, in words.
pub(in crate::cli::serve) fn described_auth(config: &Config) -> String {
    let mut files: Vec<String> = config.users().map(|it| it.path().display().to_string()).collect();
    files.dedup();
    if files.is_empty() {
        return String::new();
    }
    let mut addresses = config.listen.iter().flat_map(|listen| &listen.addresses);
    // What addresses the sockets of a service manager have is not known here.
    let is_local = !config.listen.is_empty() && addresses.all(|it| it.ip().is_loopback());
    let is_local = is_local || config.tls.is_some();
    let clear = match is_local {
        true => "",
        false => " (passwords go over the network in clear text without HTTPS)",
    };
    format!(", users of {}{clear}", files.join(" and "))
}
