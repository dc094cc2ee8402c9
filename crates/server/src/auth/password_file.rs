//! The file of users, read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use drover_usage::UsageError;

use crate::auth::credentials::TagKey;
use crate::auth::users::Users;
use crate::auth::verifiers::{THREADS, VerifierPool};
use crate::private_files::{read_again, refuse_served};

/// Which part of the server's memory verifying passwords may take.
const MEMORY_SHARE: u64 = 4;

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
        let text = read_again(path).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; the user who starts the server must be allowed to"
                }
                _ => "",
            };
            anyhow!(error).context(format!("--auth {name}: cannot be read{remedy}"))
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

    /// Refuses users whose passwords take more memory to verify than a server of so many processes may spend on that: of
    /// `limit` bytes that it has, a quarter.
    ///
    /// # Errors
    /// How much they take, and what takes less.
    pub fn check_memory<'a>(
        users: impl Iterator<Item = &'a Arc<Auth>>,
        processes: usize,
        limit: u64,
    ) -> anyhow::Result<()> {
        let mut files: Vec<&Arc<Auth>> = Vec::new();
        for auth in users {
            // Sites with one file of users share its threads.
            if !files.iter().any(|other| Arc::ptr_eq(other, auth)) {
                files.push(auth);
            }
        }
        let each = |auth: &Auth| auth.pool.users().memory() * THREADS as u64 * processes as u64;
        let all: u64 = files.iter().map(|auth| each(auth)).sum();
        let Some(largest) = files.iter().max_by_key(|auth| each(auth)) else { return Ok(()) };
        if all > limit / MEMORY_SHARE {
            bail!(UsageError::new(format!(
                "--auth {}: verifying passwords may take {} MiB ({THREADS} at a time in each process), and of the {} MiB \
                 that the server may use a quarter is for that; write hashes that take less, with 'htpasswd -B' or \
                 'argon2 SALT -id -k 19456 -t 2 -e' (19 MiB)",
                largest.path.display(),
                all >> 20,
                limit >> 20,
            )));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_take_a_quarter_of_the_memory_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, kibibytes: u32| {
            let file = folder.path().join(name);
            let hash = format!(
                "$argon2id$v=19$m={kibibytes},t=1,p=1$c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg"
            );
            std::fs::write(&file, format!("ann:{hash}")).unwrap();
            Arc::new(Auth::read(&file, &[]).unwrap())
        };
        let (one, other) = (read("one", 64 << 10), read("other", 32 << 10));
        let mebi = |count: u64| count << 20;
        let check = |users: &[&Arc<Auth>], processes, limit| {
            Auth::check_memory(users.iter().copied(), processes, limit)
        };
        assert!(check(&[], 9, 0).is_ok());
        assert!(check(&[&one], 1, mebi(512)).is_ok());
        assert!(check(&[&one, &one], 1, mebi(512)).is_ok());
        for (users, processes, limit) in
            [(&[&one][..], 1, mebi(511)), (&[&one, &other], 1, mebi(512)), (&[&one], 2, mebi(1000))]
        {
            let error = check(users, processes, limit).unwrap_err().to_string();
            assert!(error.contains("one: verifying") && error.contains("htpasswd -B"), "{error}");
        }
        assert!(check(&[&one, &other], 2, mebi(1536)).is_ok());
    }
}
