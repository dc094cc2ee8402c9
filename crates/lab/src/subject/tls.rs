//! The certificate of the servers of a session, which the lab has made for cells with TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::WorkFolder;
use crate::failure::Failure;
use crate::wire::Wire;

/// A certificate for every address that a subject may listen on, its key, and the authority that has issued it. Dropping
/// the value removes the files: a session that is given to others has no private key in it.
#[derive(Debug)]
pub struct TlsFiles(WorkFolder);

impl TlsFiles {
    /// Makes the files in a folder by Drover's own program, which knows how; the lab knows nothing of certificates.
    ///
    /// # Errors
    /// [`Failure::NotMeasured`] with what the program says.
    pub fn make(drover: &Path, folder: &Path) -> Result<TlsFiles, Failure> {
        let files = TlsFiles(WorkFolder::create(folder).map_err(Failure::of_lab)?);
        let mut command = Command::new(drover);
        command.args(["lab", "certificate"]).arg(files.0.path());
        command.args(Wire::ADDRESSES.map(|address| address.to_string()));
        let failed = |why: String| Failure::not_measured(format!("no certificate is made: {why}"));
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(files),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    /// The server's certificate (PEM).
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.0.path().join("server.pem")
    }

    /// The private key of the server's certificate (PEM).
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.0.path().join("server-key.pem")
    }

    /// The certificate of the authority that clients have to trust (PEM).
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }
}
