//! The file of users, read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use drover_usage::UsageError;

use crate::auth::credentials::TagKey;
use crate::auth::users::Users;
use crate::auth::verifiers::VerifierPool;
use crate::private_files::refuse_served;

/// The users of a server, and the threads that verify their passwords.
pub struct Auth {
    path: PathBuf,
    /// What the file held.
    text: String,
    pool: VerifierPool,
}

impl Auth {
    /// Reads the file of users, for a server of the files beneath `roots`.
    ///
    /// # Errors
    /// A file that cannot be read, is none of users, or would be served itself.
    pub fn read(path: &Path, roots: &[PathBuf]) -> anyhow::Result<Auth> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "--auth {name}: cannot be read; the user who starts the server must be allowed to"
            )
        })?;
        refuse_served("--auth", path, roots)?;
        Auth::of(path, text)
    }

    /// The users of a file that holds `text`, for a process that does not read the file itself.
    ///
    /// # Errors
    /// It is no file of users.
    pub fn of(path: &Path, text: String) -> anyhow::Result<Auth> {
        let name = path.display();
        let users = Users::parse(&text)
            .map_err(|reason| anyhow!(UsageError::new(format!("--auth {name}: {reason}"))))?;
        let key = TagKey::random().context("--auth: there are no random numbers")?;
        Ok(Auth { path: path.to_owned(), text, pool: VerifierPool::new(users, key) })
    }

    /// What the file held when it was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the threads that verify passwords.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.pool.start()
    }

    pub(crate) fn pool(&self) -> &VerifierPool {
        &self.pool
    }
}

/// Equal are those with the same users and passwords.
impl PartialEq for Auth {
    fn eq(&self, other: &Auth) -> bool {
        self.pool.users() == other.pool.users()
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("path", &self.path).finish_non_exhaustive()
    }
}
