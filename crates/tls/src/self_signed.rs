//! Certificates for a machine that has none: a certificate authority of this machine, kept in a folder, and a certificate that it
//! has issued for the machine's names. Whoever trusts the authority once trusts each certificate that follows.
//!
//! Servers that start at once find one authority: the folder has a lock, which one of them holds at a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use drover_sys::{private_folder, whole_file};
use drover_usage::UsageError;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certificate::{Certificate, CertificateFiles};

/// How long a certificate is valid. Browsers accept no longer ones (398 days).
const VALID: Duration = Duration::from_secs(397 * 24 * 60 * 60);

/// With fewer days left, another certificate is issued.
const RENEWED_AT: i64 = 60;

/// How long the authority is valid.
const AUTHORITY_VALID: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Clocks of other machines may be behind.
const CLOCK_ERROR: Duration = Duration::from_secs(60 * 60);

/// A certificate of this machine.
#[derive(Debug)]
pub struct LocalCertificate {
    /// Its files.
    pub files: CertificateFiles,
    /// What its file held while the folder was locked: another server may issue the next certificate at any time.
    pub text: String,
    /// What the file of its key held then.
    pub key_text: String,
    /// The certificate of the authority, for those who are to trust it.
    pub authority: PathBuf,
    /// Whether the authority was made just now, so that nobody trusts it yet.
    pub is_new_authority: bool,
}

/// The certificate for `names` in `folder`: the one that is there, unless it has other names or expires soon. The folder is made if
/// it is missing; only its owner may read it.
///
/// Waits while another process does the same.
///
/// # Errors
/// The folder belongs to somebody else, or others can write it; it cannot be written, or what is in it cannot be read.
pub fn certificate(folder: &Path, names: &[String]) -> anyhow::Result<LocalCertificate> {
    private_folder::create(folder).map_err(|refused| UsageError::new(refused.to_string()))?;
    let _lock = lock(folder)?;
    let (authority, authority_key) = (folder.join("ca.pem"), folder.join("ca-key.pem"));
    let files = files(folder);
    let is_new_authority = !(authority.exists() && authority_key.exists());
    if is_new_authority {
        make_authority(&authority, &authority_key)?;
    }
    if is_new_authority || !is_still_good(&files, names) {
        issue(&authority, &authority_key, &files, names)?;
    }
    let (text, key_text) = (read(&files.certificate)?, read(&files.key)?);
    Ok(LocalCertificate { files, text, key_text, authority, is_new_authority })
}

/// Waits for the folder's lock, for which nothing is written there. It is free again when the descriptor is closed (flock(2)).
fn lock(folder: &Path) -> anyhow::Result<File> {
    let locked = File::open(folder).and_then(|folder| {
        match rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive)) {
            // Some file systems have no locks, NFS has none for folders (EBADF): a pair of which each is of another server is refused.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::BADF) => Ok(folder),
            Err(error) => Err(error.into()),
        }
    });
    locked.with_context(|| format!("cannot lock {}", folder.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The files of the certificate in `folder`.
#[must_use]
pub fn files(folder: &Path) -> CertificateFiles {
    let file = |name: &str| folder.join(name);
    CertificateFiles { certificate: file("server.pem"), key: file("server-key.pem") }
}

/// A certificate for `names` that nobody trusts and nothing is kept of: to find what a server with one would do.
///
/// # Errors
/// The operating system has no random bytes, or a name is none.
pub fn in_memory(names: &[String]) -> anyhow::Result<Certificate> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let files = CertificateFiles { certificate: "self-signed".into(), key: "self-signed".into() };
    Certificate::of(files, made.cert.pem(), made.signing_key.serialize_pem())
}

/// Whether there is a certificate in `files` that is for all `names` and for a while.
fn is_still_good(files: &CertificateFiles, names: &[String]) -> bool {
    let texts = read(&files.certificate).ok().zip(read(&files.key).ok());
    let parsed = texts.and_then(|(cert, key)| Certificate::of(files.clone(), cert, key).ok());
    parsed.is_some_and(|certificate| {
        let has_all = names.iter().all(|name| certificate.names().contains(name));
        has_all && certificate.days_left(SystemTime::now()) >= RENEWED_AT
    })
}

fn make_authority(certificate: &Path, key_file: &Path) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(Vec::new())?;
    // Several authorities can be told apart, also two of one machine.
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let number = u32::from_be_bytes(random()?);
    let name = format!("Drover local CA {number:08x} of {}", machine.trim());
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    be_valid(&mut parameters, AUTHORITY_VALID);
    let text = parameters.self_signed(&key)?.pem();
    write(key_file, &key.serialize_pem(), 0o600)?;
    write(certificate, &text, 0o644)
}

fn random() -> anyhow::Result<[u8; 4]> {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).ok().context("there are no random bytes")?;
    Ok(bytes)
}

fn issue(
    authority: &Path,
    authority_key: &Path,
    files: &CertificateFiles,
    names: &[String],
) -> anyhow::Result<()> {
    let unusable = || format!("{} cannot be used; remove it, or repair it", authority.display());
    let issuer_key = KeyPair::from_pem(&read(authority_key)?).with_context(unusable)?;
    let text = read(authority)?;
    if !belong_together(&text, &issuer_key) {
        bail!(UsageError::new(format!(
            "{} and {} do not belong together; remove both, and trust the new authority",
            authority.display(),
            authority_key.display()
        )));
    }
    let issuer = Issuer::from_ca_cert_pem(&text, issuer_key).with_context(unusable)?;
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names)?;
    let first = names.first().map_or("localhost", String::as_str);
    parameters.distinguished_name.push(DnType::CommonName, first);
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.use_authority_key_identifier_extension = true;
    be_valid(&mut parameters, VALID);
    let text = parameters.signed_by(&key, &issuer)?.pem();
    write(&files.key, &key.serialize_pem(), 0o600)?;
    write(&files.certificate, &text, 0o644)
}

/// Whether a key is that of a certificate. Where files cannot be locked, two servers that made them at once may have left one of each.
fn belong_together(certificate: &str, key: &KeyPair) -> bool {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
    // What is no certificate is named as that.
    certificate.map_or(true, |certificate| {
        X509Certificate::from_der(&certificate)
            .is_ok_and(|(_, it)| it.public_key().raw == key.subject_public_key_info())
    })
}

fn be_valid(parameters: &mut CertificateParams, time: Duration) {
    let now = OffsetDateTime::now_utc();
    (parameters.not_before, parameters.not_after) = (now - CLOCK_ERROR, now + time);
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = whole_file::write(path, text.as_bytes(), mode);
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A certificate for these names, in memory.
#[cfg(test)]
pub(crate) fn for_tests(names: &[&str]) -> std::sync::Arc<Certificate> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    std::sync::Arc::new(in_memory(&names).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_issued_again_only_for_other_names() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/tls");
        let wanted = names(&["localhost", "127.0.0.1", "::1"]);
        let read = |made: &LocalCertificate| fs::read_to_string(&made.files.certificate).unwrap();
        let first = certificate(&folder, &wanted).unwrap();
        assert!(first.is_new_authority);
        let text = read(&first);
        let again = certificate(&folder, &wanted).unwrap();
        assert!(!again.is_new_authority && read(&again) == text);
        let more = names(&["localhost", "127.0.0.1", "::1", "a.example"]);
        let other = certificate(&folder, &more).unwrap();
        assert!(!other.is_new_authority && read(&other) != text);
        let key = fs::read_to_string(&other.files.key).unwrap();
        let parsed = Certificate::of(other.files.clone(), read(&other), key).unwrap();
        assert_eq!(parsed.names(), more);
        assert!((396..=397).contains(&parsed.days_left(SystemTime::now())));
        assert_eq!(parsed.problem(SystemTime::now()), None);
        // Fewer names are in it already.
        assert_eq!(read(&certificate(&folder, &wanted).unwrap()), read(&other));
    }

    #[test]
    fn only_the_owner_reads_the_keys() {
        use std::os::unix::fs::PermissionsExt;

        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("tls");
        let made = certificate(&folder, &names(&["localhost"])).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&made.files.key), 0o600);
        assert_eq!(mode(&folder.join("ca-key.pem")), 0o600);
    }

    /// Without a lock some find the authority of one and the key of another.
    #[test]
    fn those_that_start_at_once_have_one_authority() {
        let parent = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let folder = parent.path().join(round.to_string());
            let together = std::sync::Barrier::new(8);
            let made: Vec<LocalCertificate> = std::thread::scope(|scope| {
                let start = |number: usize| {
                    let (folder, together) = (&folder, &together);
                    scope.spawn(move || {
                        let own = format!("{}.example", number % 2);
                        together.wait();
                        certificate(folder, &names(&["localhost", &own])).unwrap()
                    })
                };
                let threads: Vec<_> = (0..8).map(start).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(made.iter().filter(|it| it.is_new_authority).count(), 1);
            for (number, made) in made.into_iter().enumerate() {
                let LocalCertificate { files, text, key_text, .. } = made;
                let certificate = Certificate::of(files, text, key_text).unwrap();
                assert!(certificate.names().contains(&format!("{}.example", number % 2)));
            }
        }
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let parents = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let made = parents.each_ref().map(|it| certificate(it.path(), &names(&["a"])).unwrap());
        fs::copy(&made[1].authority, &made[0].authority).unwrap();
        let error = certificate(parents[0].path(), &names(&["b"])).unwrap_err().to_string();
        assert!(error.contains("do not belong together"), "{error}");
    }

    #[test]
    fn a_broken_authority_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let made = certificate(parent.path(), &names(&["localhost"])).unwrap();
        fs::write(&made.authority, "nothing").unwrap();
        let error = certificate(parent.path(), &names(&["other"])).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("ca.pem cannot be used"), "{error}");
    }
}
