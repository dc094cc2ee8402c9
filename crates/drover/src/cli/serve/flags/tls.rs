//! Flags of `drover serve` for HTTPS: certificates, what is asked of clients, and clients that come without.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use drover_server::{HttpsPort, Listen, OpenedFiles, TlsSettings, read_again, refuse_served};
use drover_sys::socket::{self, Address};
use drover_tls::certificate::{Certificate, CertificateFiles};
use drover_tls::self_signed::{self, LocalCertificate};
use drover_tls::server::{ClientAuthorities, OldestVersion, ServerTlsOptions};
use drover_usage::{UsageError, duration};
use tracing::info;

use super::site::{HTTPS, SiteFlags};
use super::state_folder::state_folder;
use super::{Args, acme};
use crate::cli::serve::hosts::HostFlag;
use crate::cli::serve::roots;

/// What HTTPS is spoken with.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct TlsFlags {
    /// Serve HTTPS with a certificate made here: self-signed
    ///
    /// Drover creates a local CA once and keeps it in $XDG_STATE_HOME/drover/tls (or ~/.local/state/drover/tls). Browsers
    /// accept the certificate after you have imported the CA file, whose path is printed. With --tls-cert use your own.
    #[arg(help_heading = HTTPS)]
    #[arg(long, value_name = "SOURCE", conflicts_with = "tls_cert", hide_possible_values = true)]
    pub(in crate::cli::serve) tls: Option<TlsSource>,

    /// Redirect clients from plain HTTP to HTTPS (308)
    #[arg(help_heading = HTTPS)]
    #[arg(long)]
    pub(in crate::cli::serve) https_redirect: bool,

    /// Port that clients are redirected to [default: the one Drover listens on]
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "PORT", requires = "https_redirect")]
    https_port: Option<NonZeroU16>,

    /// Tell browsers to use only HTTPS for this host for TIME: 1w, 365d (Strict-Transport-Security)
    ///
    /// Browsers remember it and cannot be told otherwise before TIME is over. Start with a short time.
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(in crate::cli::serve) hsts: Option<Duration>,

    /// Oldest TLS version to accept
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "VERSION", default_value = "1.2")]
    pub(in crate::cli::serve) tls_min: TlsVersion,

    /// Require a client certificate issued by a CA in FILE (PEM)
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) tls_client_ca: Option<PathBuf>,

    /// Refuse clients that name no host, or one without a certificate; otherwise they get the first certificate
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long)]
    pub(in crate::cli::serve) tls_strict_sni: bool,
}

/// The values of `--tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum TlsSource {
    SelfSigned,
}

/// The values of `--tls-min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum TlsVersion {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl TlsFlags {
    /// Where clients without TLS are sent.
    pub(in crate::cli::serve) fn redirect(&self) -> Option<HttpsPort> {
        let port = || self.https_port.map_or(HttpsPort::Bound, |port| HttpsPort::Given(port.get()));
        self.https_redirect.then(port)
    }
}

/// The certificates that flags name and what else they say of TLS; `None`: HTTPS is not spoken.
///
/// # Errors
/// Files that cannot be used, and flags that do not go together.
pub(in crate::cli::serve) fn settings(
    args: &Args,
    opened: &OpenedFiles,
) -> anyhow::Result<Option<Arc<TlsSettings>>> {
    let flags = &args.tls;
    // A host's own certificate comes before one for all hosts that names it too.
    let (of_hosts, mut of_all) = certificate_files(args)?;
    let mut made = None;
    if flags.tls.is_some() {
        let folder = state_folder("--tls self-signed", "tls")?;
        of_all.insert(0, self_signed::files(&folder));
        made = local_certificate(&folder, args, opened)?;
    }
    let shown_to_others = if of_all.is_empty() { 0 } else { of_hosts.len() };
    let files: Vec<CertificateFiles> = of_hosts.into_iter().chain(of_all).collect();
    let is_acme = args.acme.acme.is_some();
    if files.is_empty() && !is_acme {
        return none(args).map(|()| None);
    }
    let roots = roots(args);
    let read = |files: CertificateFiles| match made.take_if(|made| made.files == files) {
        Some(made) => certificate_just_made(made, &roots).map(Arc::new),
        None => read_certificate(files, opened, &roots).map(Arc::new),
    };
    let certificates: Vec<Arc<Certificate>> =
        files.into_iter().map(read).collect::<anyhow::Result<_>>()?;
    let client_authorities = match &flags.tls_client_ca {
        None => None,
        Some(path) => {
            let text = read_private("--tls-client-ca", path, opened, &[])?;
            Some(ClientAuthorities { path: path.clone(), text })
        }
    };
    let options = ServerTlsOptions {
        oldest: match flags.tls_min {
            TlsVersion::Tls12 => OldestVersion::Tls12,
            TlsVersion::Tls13 => OldestVersion::Tls13,
        },
        client_authorities,
        strict_names: flags.tls_strict_sni,
        shown_to_others,
        protocols: match args.http2.is_off() {
            true => vec!["http/1.1"],
            false => vec!["h2", "http/1.1"],
        },
    };
    let settings = match is_acme {
        false => TlsSettings::new(certificates, options)?,
        true => {
            let stand_in = |names: &[String]| stand_in(args, opened, names);
            TlsSettings::obtaining(certificates, acme::obtained(args, opened, stand_in)?, options)?
        }
    };
    Ok(Some(Arc::new(settings)))
}

/// The certificate that is shown until the CA has issued all: of this machine's own CA, for `names` too.
fn stand_in(
    args: &Args,
    opened: &OpenedFiles,
    names: &[String],
) -> anyhow::Result<Option<Arc<Certificate>>> {
    let mut all = own_names(args);
    let own: Vec<String> = names.iter().filter(|name| !all.contains(*name)).cloned().collect();
    all.extend(own);
    if args.check || args.explain {
        // Nothing is made that stays.
        return self_signed::in_memory(&all).map(|made| Some(Arc::new(made)));
    }
    let folder = state_folder("--acme", "tls")?;
    let files = self_signed::files(&folder);
    if opened.text(&files.certificate).is_none() {
        if opened.has_texts() {
            return Ok(None);
        }
        self_signed::certificate(&folder, &all).context("--acme")?;
        info!(
            "--acme: a self-signed certificate is served until the CA has issued one for each name"
        );
    }
    read_certificate(files, opened, &roots(args)).map(|made| Some(Arc::new(made)))
}

/// Refuses flags that mean something only with a certificate.
fn none(args: &Args) -> anyhow::Result<()> {
    let TlsFlags { https_redirect, hsts, tls_client_ca, tls_strict_sni, .. } = &args.tls;
    let wants_tls = args.listen.iter().any(|listen| listen.is_tls == Some(true));
    let flag = [
        ("--https-redirect", *https_redirect),
        ("--hsts", hsts.is_some()),
        ("--tls-client-ca", tls_client_ca.is_some()),
        ("--tls-strict-sni", *tls_strict_sni),
        ("--listen ADDR,tls", wants_tls),
    ];
    match flag.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => bail!(UsageError::new(format!(
            "{flag} needs a certificate: add --tls-cert and --tls-key, --acme, or --tls self-signed"
        ))),
        None => Ok(()),
    }
}

/// Refuses a certificate that no address shows, and to tell browsers over plain HTTP to use HTTPS alone (RFC 6797 section 7.2).
/// `listen`: where the server is to listen, besides the sockets that were `passed` to it.
///
/// # Errors
/// The flag, and the remedy.
pub(in crate::cli::serve) fn check_addresses(
    args: &Args,
    listen: &[Listen],
    passed: &[Address],
) -> anyhow::Result<()> {
    let (of_hosts, of_all) = certificate_files(args)?;
    if args.tls.tls.is_none() && of_hosts.is_empty() && of_all.is_empty() {
        return Ok(());
    }
    let is_plain = |listen: &Listen| {
        let is_http = listen.addresses.iter().any(|address| address.port() == 80);
        !listen.is_tls.unwrap_or(!is_http)
    };
    let is_plain_socket =
        |address: &&Address| address.ip().is_some_and(|address| address.port() == 80);
    if listen.iter().all(is_plain) && passed.iter().all(|it| is_plain_socket(&it)) {
        bail!(UsageError::new(
            "there is a certificate, and no address speaks HTTPS: add --listen :443, or ',tls' behind an address"
        ));
    }
    if args.tls.hsts.is_none() || args.tls.https_redirect {
        return Ok(());
    }
    if let Some(socket) = passed.iter().find(is_plain_socket) {
        bail!(UsageError::new(format!(
            "--hsts with the passed socket of {socket}, which serves plain HTTP: add --https-redirect, so that everything \
             else is HTTPS"
        )));
    }
    if listen.iter().any(is_plain) {
        bail!(UsageError::new(
            "--hsts with an address that serves plain HTTP: add --https-redirect, so that everything else is HTTPS"
        ));
    }
    Ok(())
}

/// The files of `--tls-cert` and `--tls-key`: those of single hosts, and those for all hosts.
fn certificate_files(
    args: &Args,
) -> anyhow::Result<(Vec<CertificateFiles>, Vec<CertificateFiles>)> {
    let of_all = pairs(&args.site)?;
    let mut of_hosts = Vec::new();
    for host in &args.host {
        // A host has those of all too, unless it has its own.
        let own = pairs(&host.flags(&args.site))?.into_iter();
        of_hosts.extend(own.filter(|files| !of_all.contains(files)));
    }
    of_hosts.dedup();
    Ok((of_hosts, of_all))
}

/// The certificates of a site, each with its key.
fn pairs(flags: &SiteFlags) -> anyhow::Result<Vec<CertificateFiles>> {
    if flags.tls_cert.len() != flags.tls_key.len() {
        bail!(UsageError::new(format!(
            "each --tls-cert needs its --tls-key, in the same order: there are {} and {}",
            flags.tls_cert.len(),
            flags.tls_key.len()
        )));
    }
    let each = flags.tls_cert.iter().zip(&flags.tls_key);
    let each = each.map(|(certificate, key)| CertificateFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    });
    Ok(each.collect())
}

/// Has the certificate of this machine made in `folder`, unless it is there. `None`: it is read like others. A worker takes what its
/// supervisor has read, and makes none.
fn local_certificate(
    folder: &Path,
    args: &Args,
    opened: &OpenedFiles,
) -> anyhow::Result<Option<LocalCertificate>> {
    let files = self_signed::files(folder);
    if opened.text(&files.certificate).is_some() {
        return Ok(None);
    }
    if args.check || args.explain {
        // Nothing is made. A certificate that is there is looked at.
        if !files.certificate.exists() {
            bail!(UsageError::new(format!(
                "--tls self-signed: there is no certificate yet; 'drover serve' without this flag creates one in {}",
                folder.display()
            )));
        }
        return Ok(None);
    }
    let made = self_signed::certificate(folder, &own_names(args)).context("--tls self-signed")?;
    let authority = made.authority.display();
    if made.is_new_authority {
        info!(
            "--tls self-signed: created a local CA; clients trust it after importing {authority}"
        );
    } else {
        info!("--tls self-signed: clients that trust {authority} trust this server");
    }
    Ok(Some(made))
}

/// The certificate of this machine as it was when it was made or found: another server may have replaced it since.
fn certificate_just_made(made: LocalCertificate, roots: &[PathBuf]) -> anyhow::Result<Certificate> {
    refuse_served("--tls-key", &made.files.key, roots)?;
    Certificate::of(made.files, made.text, made.key_text)
}

/// Reads a certificate and its key, for a server of the files beneath `roots`; or takes what the supervisor has read.
///
/// # Errors
/// A file that cannot be read, is not what it should be, or would be served itself.
fn read_certificate(
    files: CertificateFiles,
    opened: &OpenedFiles,
    roots: &[PathBuf],
) -> anyhow::Result<Certificate> {
    let text = read_private("--tls-cert", &files.certificate, opened, &[])?;
    let key = read_private("--tls-key", &files.key, opened, roots)?;
    Certificate::of(files, text, key)
}

/// Reads a file of TLS that `flag` names and that must not be beneath one of `roots`; or takes what the supervisor has read.
///
/// # Errors
/// It cannot be read, or would be served itself.
fn read_private(
    flag: &str,
    path: &Path,
    opened: &OpenedFiles,
    roots: &[PathBuf],
) -> anyhow::Result<String> {
    if let Some(text) = opened.text(path) {
        return Ok(text.to_owned());
    }
    refuse_served(flag, path, roots)?;
    read_again(path).with_context(|| {
        format!(
            "{flag} {}: cannot be read; start as a user who may read it (root may, with --user for the workers)",
            path.display()
        )
    })
}

/// The names that clients may use for this machine, and for the hosts that it serves.
fn own_names(args: &Args) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let mut add = |name: String| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    };
    let is_without = |host: &&HostFlag| host.flags(&args.site).tls_cert == args.site.tls_cert;
    for host in args.host.iter().filter(is_without) {
        host.names.iter().for_each(|name| add(name.to_string().to_ascii_lowercase()));
    }
    for listen in &args.listen {
        let named = listen.name.rsplit_once(':').map(|(host, _)| host.to_ascii_lowercase());
        let is_name = |host: &String| host.chars().any(|it| it.is_ascii_alphabetic());
        named
            .filter(|host| is_name(host) && !host.contains([':', '/', '[']))
            .into_iter()
            .for_each(&mut add);
        let addresses = listen.addresses.iter().map(|address| address.ip());
        addresses.filter(|ip| !ip.is_unspecified()).for_each(|ip| add(ip.to_string()));
    }
    if args.listen.iter().any(|it| it.addresses.iter().any(|it| it.ip().is_unspecified())) {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        add(machine.trim().to_ascii_lowercase());
        // Without them clients have to use a name.
        let addresses = socket::interface_addresses().unwrap_or_default();
        addresses.into_iter().for_each(|ip| add(ip.to_string()));
    }
    names
}

/// What HTTPS is spoken with, in words; empty without.
pub(in crate::cli::serve) fn described(tls: Option<&TlsSettings>) -> String {
    let Some(tls) = tls else { return String::new() };
    let now = SystemTime::now();
    let each = tls.certificates().iter().map(|certificate| {
        let name = certificate.names().first().map_or("no host", String::as_str);
        let others = match certificate.names().len() {
            0 | 1 => String::new(),
            names => format!(" and {} more names", names - 1),
        };
        format!("{name}{others} ({} days left)", certificate.days_left(now))
    });
    let clients = match &tls.options().client_authorities {
        Some(authorities) => {
            format!(", only for clients with a certificate of {}", authorities.path.display())
        }
        None => String::new(),
    };
    format!(", HTTPS for {}{clients}", each.collect::<Vec<_>>().join(", "))
}
