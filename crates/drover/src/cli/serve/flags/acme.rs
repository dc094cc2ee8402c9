//! Flags of `drover serve` for certificates that it gets from a CA.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use drover_acme::{
    AccountOptions, AcmeState, CaTrust, CaUrl, LETS_ENCRYPT, check_name, renewal_time,
};
use drover_server::{AcmeSettings, ObtainedCertificates, OpenedFiles, read_again, refuse_served};
use drover_tls::certificate::{Certificate, CertificateFiles};
use drover_usage::UsageError;
use tracing::warn;

use super::Args;
use super::site::HTTPS;
use super::state_folder::state_folder;
use crate::cli::serve::roots;

/// Certificates from a CA.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct AcmeFlags {
    /// Get certificates from Let's Encrypt and renew them; agrees to its terms. MAIL is your address, for the CA
    ///
    /// Each name of a [[host]], or --acme-name, gets a certificate. The CA must reach this server under these names at port 80 or
    /// 443. Until the first certificate is there, a self-signed one is served. Keys, certificates and the account are kept in
    /// $XDG_STATE_HOME/drover/acme (or ~/.local/state/drover/acme, or systemd's STATE_DIRECTORY).
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "MAIL", value_parser = mail, conflicts_with_all = ["tls", "tls_cert"])]
    pub(in crate::cli::serve) acme: Option<String>,

    /// Host name to get a certificate for; may be given several times [default: the names of all hosts]
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "NAME", value_parser = host_name, requires = "acme")]
    pub(in crate::cli::serve) acme_name: Vec<String>,

    /// ACME directory of another CA [default: Let's Encrypt]
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "URL", value_parser = directory, requires = "acme")]
    acme_directory: Option<CaUrl>,

    /// Trust only the CAs in FILE (PEM) to be the server of --acme-directory
    #[arg(help_heading = HTTPS, hide_short_help = true)]
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_ca_file: Option<PathBuf>,
}

/// Reads an address of mail: enough to find a typing error. The CA reads it again.
fn mail(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let parts = text.split_once('@').filter(|(name, host)| !name.is_empty() && host.contains('.'));
    let is_plain = text.bytes().all(|it| it.is_ascii_graphic() && !b",?<>\"".contains(&it));
    match parts.is_some_and(|(_, host)| !host.contains('@')) && is_plain {
        true => Ok(text.to_owned()),
        false => Err("write an address such as admin@example.org".to_owned()),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    check_name(&name).map(|()| name).map_err(str::to_owned)
}

fn directory(text: &str) -> Result<CaUrl, String> {
    CaUrl::parse(text).map_err(str::to_owned)
}

/// The names that certificates are for.
///
/// # Errors
/// There are none, or one that cannot have a certificate.
pub(in crate::cli::serve) fn names(args: &Args) -> anyhow::Result<Vec<String>> {
    if !args.acme.acme_name.is_empty() {
        let mut names = args.acme.acme_name.clone();
        names.sort_unstable();
        names.dedup();
        return Ok(names);
    }
    let mut names = Vec::new();
    for host in args.host.iter().filter(|host| host.flags(&args.site).tls_cert.is_empty()) {
        for name in host.names.iter().map(|name| name.to_string().to_ascii_lowercase()) {
            if let Err(why) = check_name(&name) {
                bail!(UsageError::new(format!(
                    "--acme: no certificate for {name}: {why}; give this host its own tls-cert and tls-key, or name all \
                     names with --acme-name"
                )));
            }
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!(UsageError::new(
            "--acme: which names? Add --acme-name www.example.org, or [[host]] tables to the configuration file"
        ));
    }
    Ok(names)
}

/// What is kept of the CA.
fn state(args: &Args) -> anyhow::Result<AcmeState> {
    let folder = state_folder("--acme", "acme")?;
    Ok(AcmeState::at(folder.join(directory_of(args).folder_name())))
}

fn directory_of(args: &Args) -> CaUrl {
    let own = args.acme.acme_directory.clone();
    own.unwrap_or_else(|| CaUrl::parse(LETS_ENCRYPT).expect("it is the URL of a CA"))
}

/// What the supervisor is to get from a CA; `None`: nothing. Makes nothing.
///
/// # Errors
/// Names that cannot have a certificate, files that cannot be read, flags that do not go together.
pub(in crate::cli::serve) fn settings(args: &Args) -> anyhow::Result<Option<Arc<AcmeSettings>>> {
    let Some(mail) = args.acme.acme.clone() else { return Ok(None) };
    let trust = match &args.acme.acme_ca_file {
        None => CaTrust::System,
        Some(path) => {
            let text = read_again(path);
            let text = text.with_context(|| format!("--acme-ca-file {}", path.display()))?;
            CaTrust::Authorities(path.clone(), text)
        }
    };
    // A file without a certificate is found now, and not by a thread later.
    drover_acme::CaTransport::new(&trust).map_err(|error| UsageError::new(error.to_string()))?;
    let is_plain = |listen: &drover_server::Listen| {
        let is_http = listen.addresses.iter().any(|address| address.port() == 80);
        !listen.is_tls.unwrap_or(!is_http)
    };
    if args.tls.tls_client_ca.is_some() && !args.listen.iter().any(is_plain) {
        bail!(UsageError::new(
            "--acme with --tls-client-ca: the CA has no client certificate; add --listen :80 for it"
        ));
    }
    let account = AccountOptions { directory: directory_of(args), mail };
    let (names, state) = (names(args)?, state(args)?);
    Ok(Some(Arc::new(AcmeSettings { account, trust, names, state })))
}

/// The certificates that the server has got so far, and a stand-in for those that are missing.
///
/// # Errors
/// Files that are there and cannot be read, or would be served.
pub(in crate::cli::serve) fn obtained(
    args: &Args,
    opened: &OpenedFiles,
    stand_in: impl FnOnce(&[String]) -> anyhow::Result<Option<Arc<Certificate>>>,
) -> anyhow::Result<ObtainedCertificates> {
    let (names, state) = (names(args)?, state(args)?);
    let is_start = !args.check && !args.explain && !opened.has_texts();
    if is_start {
        state.prepare()?;
    }
    let roots = roots(args);
    let (mut files, mut certificates) = (Vec::new(), Vec::new());
    for name in &names {
        let path = state.certificate(name);
        files.push(CertificateFiles { certificate: path.clone(), key: path.clone() });
        certificates.extend(certificate(name, &path, opened, &roots)?.map(Arc::new));
    }
    let stand_in = match certificates.len() < names.len() {
        true => stand_in(&names)?,
        false => None,
    };
    Ok(ObtainedCertificates { files, certificates, stand_in })
}

/// The certificate for a name; `None`: there is none that can be used yet.
fn certificate(
    name: &str,
    path: &Path,
    opened: &OpenedFiles,
    roots: &[PathBuf],
) -> anyhow::Result<Option<Certificate>> {
    let text = match opened.text(path) {
        Some(text) => text.to_owned(),
        // A worker has what its supervisor has read, and looks at no file.
        None if opened.has_texts() => return Ok(None),
        None => {
            refuse_served("--acme", path, roots)?;
            match read_again(path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "--acme: cannot read {}; it belongs to the user who starts the server",
                            path.display()
                        )
                    });
                }
            }
        }
    };
    let files = CertificateFiles { certificate: path.to_owned(), key: path.to_owned() };
    match Certificate::of(files, text.clone(), text) {
        Ok(certificate) if certificate.names().iter().any(|it| it == name) => Ok(Some(certificate)),
        Ok(_) => {
            warn!(
                "--acme: {} is for another name; another certificate is asked for",
                path.display()
            );
            Ok(None)
        }
        Err(error) => {
            warn!("--acme: {error:#}; another certificate is asked for");
            Ok(None)
        }
    }
}

/// What is got from a CA and when, a line for each name.
pub(in crate::cli::serve) fn described(settings: &AcmeSettings) -> Vec<String> {
    let now = SystemTime::now();
    let directory = &settings.account.directory;
    let each = settings.names.iter().map(|name| {
        let path = settings.state.certificate(name);
        let text = std::fs::read_to_string(&path).ok();
        let files = CertificateFiles { certificate: path.clone(), key: path };
        let certificate = text.and_then(|text| Certificate::of(files, text.clone(), text).ok());
        match certificate {
            None => format!("{name}: no certificate yet; would ask {directory}"),
            Some(it) => {
                let at = renewal_time(it.valid_from(), it.valid_until(), it.text().as_bytes());
                let at = match at.duration_since(now) {
                    Ok(left) => format!("in {} days", left.as_secs() / (24 * 60 * 60)),
                    Err(_) => "now".to_owned(),
                };
                format!("{name}: valid for {} days, renewal {at} at {directory}", it.days_left(now))
            }
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_mail_has_a_name_and_a_host() {
        assert_eq!(mail("a.b@example.org").unwrap(), "a.b@example.org");
        assert_eq!(mail("mailto:a@example.org").unwrap(), "a@example.org");
        for text in [
            "",
            "a",
            "@example.org",
            "a@",
            "a@localhost",
            "a b@c.d",
            "a@b@c.d",
            "a@b.c,d@e.f",
            "a@b.c?x=1",
        ] {
            assert!(mail(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_read_as_clients_send_it() {
        assert_eq!(host_name("WWW.Example.org.").unwrap(), "www.example.org");
        assert!(host_name("*.example.org").unwrap_err().contains("wildcard"));
        assert!(host_name("192.0.2.1").unwrap_err().contains("address"));
    }
}
