//! What is kept of a CA, in a folder that only its owner may read: the account, certificates with their keys, attempts.
//!
//! | file | what |
//! |---|---|
//! | `account.json` | the account's key and URL |
//! | `names/NAME.pem` | the private key, then the chain of certificates: in one file, so that both change at once |
//! | `names/NAME.json` | the attempts for that name |
//! | `lock` | locked by the server that asks the CA |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_sys::{private_folder, whole_file};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::client::{AcmeClient, RegisteredAccount};
use crate::error::AcmeError;
use crate::jws::AccountKey;
use crate::order::IssuedCertificate;
use crate::schedule::AttemptHistory;

/// The folder of one CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeState {
    folder: PathBuf,
}

/// Held by the only server that asks the CA.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// What there is of one name.
#[derive(Debug)]
pub struct WorkOnName<'s> {
    state: &'s AcmeState,
    name: String,
}

#[derive(Deserialize, Serialize)]
struct AccountText {
    /// PKCS #8 in base64.
    key: String,
    url: Option<String>,
    #[serde(default)]
    mail: String,
}

impl AcmeState {
    /// What is, or will be, in `folder`. Nothing is read or made.
    #[must_use]
    pub fn at(folder: PathBuf) -> AcmeState {
        AcmeState { folder }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the certificate for a name is kept with its key.
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join("names").join(format!("{name}.pem"))
    }

    /// Makes the folder if it is missing, and finds whether it can be written.
    ///
    /// # Errors
    /// It cannot.
    pub fn prepare(&self) -> Result<(), AcmeError> {
        let names = self.folder.join("names");
        for folder in [&self.folder, &names] {
            let made = private_folder::create(folder);
            made.map_err(|refused| AcmeError::local("--acme", refused))?;
        }
        let lock = self.lock_file();
        lock.map(drop).map_err(|error| self.failed("cannot write in", &self.folder, &error))
    }

    fn lock_file(&self) -> io::Result<File> {
        let path = self.folder.join("lock");
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    /// Keeps other servers from asking the CA as long as the lock is held; `None`: another one does.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn lock(&self) -> Result<Option<StateLock>, AcmeError> {
        let failed = |error: &io::Error| self.failed("cannot lock", &self.folder, error);
        let file = self.lock_file().map_err(|error| failed(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StateLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(&error.into())),
        }
    }

    /// The account: its key, and what the CA knows of it. Without one, another key is made and kept.
    ///
    /// # Errors
    /// The file cannot be read or written, or is no account.
    pub fn account(&self) -> Result<(AccountKey, Option<RegisteredAccount>), AcmeError> {
        let path = self.folder.join("account.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = AccountKey::generate()?;
                self.save_account(&key, None)?;
                return Ok((key, None));
            }
            Err(error) => return Err(self.failed("cannot read", &path, &error)),
        };
        let unusable = |why: &dyn std::fmt::Display| {
            let path = path.display();
            AcmeError::local(
                "account",
                format!("{path} cannot be used ({why}); remove it to register another account"),
            )
        };
        let account: AccountText = serde_json::from_str(&text).map_err(|error| unusable(&error))?;
        let key = STANDARD.decode(&account.key).map_err(|error| unusable(&error))?;
        let key = AccountKey::of_pkcs8(&key).map_err(|error| unusable(&error))?;
        let mail = account.mail;
        Ok((key, account.url.map(|url| RegisteredAccount { url, mail })))
    }

    /// Keeps the account.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_account(
        &self,
        key: &AccountKey,
        account: Option<&RegisteredAccount>,
    ) -> Result<(), AcmeError> {
        let text = AccountText {
            key: STANDARD.encode(key.pkcs8()),
            url: account.map(|it| it.url.clone()),
            mail: account.map(|it| it.mail.clone()).unwrap_or_default(),
        };
        let text = serde_json::to_string_pretty(&text).unwrap_or_default();
        self.write(&self.folder.join("account.json"), &text)
    }

    /// Keeps the account of a client.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_account_of(&self, client: &AcmeClient) -> Result<(), AcmeError> {
        self.save_account(&client.key, client.account())
    }

    /// What there is of one name, which [`check_name`](crate::check_name) has accepted.
    #[must_use]
    pub fn of_name(&self, name: &str) -> WorkOnName<'_> {
        WorkOnName { state: self, name: name.to_owned() }
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) -> AcmeError {
        let path = path.display();
        AcmeError::local(
            "--acme",
            format!("{what} {path}: {error}; certificates and the account are kept there"),
        )
    }

    /// Writes a file whole or not at all.
    fn write(&self, path: &Path, text: &str) -> Result<(), AcmeError> {
        let written = whole_file::write(path, text.as_bytes(), 0o600);
        written.map_err(|error| self.failed("cannot write", path, &error))
    }
}

impl WorkOnName<'_> {
    /// The attempts so far. A file that cannot be read as such counts as none.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn history(&self) -> Result<AttemptHistory, AcmeError> {
        let path = self.file("json");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AttemptHistory::default()),
            Err(error) => Err(self.state.failed("cannot read", &path, &error)),
        }
    }

    /// Keeps the attempts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_history(&self, history: &AttemptHistory) -> Result<(), AcmeError> {
        let text = serde_json::to_string_pretty(history).unwrap_or_default();
        self.state.write(&self.file("json"), &text)
    }

    /// Keeps a certificate in place of the one before.
    ///
    /// # Errors
    /// The file cannot be written: the one before is still there.
    pub fn save_certificate(&self, issued: &IssuedCertificate) -> Result<(), AcmeError> {
        self.state.write(&self.file("pem"), &issued.to_pem())
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.state.folder.join("names").join(format!("{}.{kind}", self.name))
    }
}

impl IssuedCertificate {
    /// Key and chain in one text.
    #[must_use]
    pub fn to_pem(&self) -> String {
        format!("{}\n{}", self.key.trim_end(), self.chain)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn state() -> (tempfile::TempDir, AcmeState) {
        let folder = tempfile::tempdir().unwrap();
        let state = AcmeState::at(folder.path().join("a/acme"));
        state.prepare().unwrap();
        (folder, state)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_is_there_again_and_its_owner_s_alone() {
        let (_folder, state) = state();
        let (key, account) = state.account().unwrap();
        assert_eq!(account, None);
        let registered =
            RegisteredAccount { url: "https://ca.example/1".into(), mail: "a@b".into() };
        state.save_account(&key, Some(&registered)).unwrap();
        let (again, account) = state.account().unwrap();
        assert_eq!((again.thumbprint(), account), (key.thumbprint(), Some(registered)));
        let name = state.of_name("a.example");
        assert_eq!(name.history().unwrap(), AttemptHistory::default());
        let mut history = AttemptHistory::default();
        history.begin(std::time::SystemTime::now());
        name.save_history(&history).unwrap();
        assert_eq!(name.history().unwrap(), history);
        let issued = IssuedCertificate { chain: "CHAIN\n".into(), key: "KEY\n".into() };
        name.save_certificate(&issued).unwrap();
        let path = state.certificate("a.example");
        assert_eq!(fs::read_to_string(&path).unwrap(), "KEY\nCHAIN\n");
        assert_eq!(mode(state.folder()), 0o700);
        for file in [path, state.folder().join("account.json"), state.folder().join("lock")] {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }

    #[test]
    fn one_server_at_a_time_has_the_lock() {
        let (_folder, state) = state();
        let held = state.lock().unwrap();
        assert!(held.is_some() && state.lock().unwrap().is_none());
        drop(held);
        assert!(state.lock().unwrap().is_some());
    }

    #[test]
    fn files_that_are_none_are_told() {
        let (_folder, state) = state();
        fs::write(state.folder().join("account.json"), "{").unwrap();
        let told = state.account().unwrap_err().to_string();
        assert!(
            told.contains("account.json cannot be used") && told.contains("remove it"),
            "{told}"
        );
        // Attempts are begun anew.
        fs::write(state.folder().join("names/a.json"), "{").unwrap();
        assert_eq!(state.of_name("a").history().unwrap(), AttemptHistory::default());
        // A file is where the folder should be.
        let file = state.folder().join("file");
        fs::write(&file, "").unwrap();
        let told = AcmeState::at(file.join("acme")).prepare().unwrap_err().to_string();
        assert!(told.contains("cannot create") && told.contains("kept there"), "{told}");
    }
}
