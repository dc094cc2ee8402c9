//! The user that a process of root becomes, for good.

use std::ffi::CString;
use std::fmt;
use std::io;

use nix::unistd::{Gid, Group, Uid, User};
use rustix::thread::CapabilitySet;

use crate::process::on_own_thread;

/// A user other than root, and the groups that a process has as this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrdinaryUser {
    name: String,
    uid: Uid,
    gid: Gid,
    /// The supplementary groups.
    groups: Vec<Gid>,
}

impl OrdinaryUser {
    /// Reads `USER` or `USER:GROUP`, each a name or a number. Without a group: the groups that the user's entry and
    /// /etc/group give the user. With one: this group alone. `USER:GROUP,OTHER` has other supplementary groups. Used as a clap
    /// `value_parser`.
    ///
    /// # Errors
    /// The message says how to write a user.
    pub fn parse(text: &str) -> Result<OrdinaryUser, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let failed = |error: nix::Error| format!("cannot look '{text}' up: {error}");
        let (group, others) = match group.and_then(|group| group.split_once(',')) {
            Some((group, others)) => (Some(group), Some(others)),
            None => (group, None),
        };
        let group = group.map(find_group).transpose()?;
        let others = others.map(|all| all.split(',').map(find_group).collect()).transpose()?;
        let (uid, entry) = match (user.parse().map(Uid::from_raw), group) {
            // Two numbers need no name service.
            (Ok(uid), Some(_)) => (uid, None),
            (Ok(uid), None) => (uid, User::from_uid(uid).map_err(failed)?),
            (Err(_), _) => {
                let entry = User::from_name(user).map_err(failed)?;
                let no_user = || {
                    format!("there is no user '{user}'; write a name, or numbers as in 1000:1000")
                };
                let entry = entry.ok_or_else(no_user)?;
                (entry.uid, Some(entry))
            }
        };
        // The highest number means "unchanged" to setuid(2)'s siblings.
        if uid.is_root() || uid.as_raw() == u32::MAX {
            return Err(format!("'{user}' is no ordinary user; write another, as in www-data"));
        }
        let (gid, groups) = match (group, &entry) {
            (Some(gid), _) => (gid, vec![gid]),
            (None, Some(entry)) => (entry.gid, groups_of(entry).map_err(failed)?),
            (None, None) => {
                return Err(format!("user {uid} has no entry; add a group, as in {uid}:{uid}"));
            }
        };
        let groups = others.unwrap_or(groups);
        Ok(OrdinaryUser { name: text.to_owned(), uid, gid, groups })
    }

    /// User and group as numbers, which [`OrdinaryUser::parse`] reads without asking a name service.
    #[must_use]
    pub fn numbers(&self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }

    /// As [`OrdinaryUser::numbers`], with all groups.
    #[must_use]
    pub fn all_numbers(&self) -> String {
        let groups: Vec<_> = self.groups.iter().map(Gid::to_string).collect();
        format!("{},{}", self.numbers(), groups.join(","))
    }

    /// User and group.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Whether the process has this user's rights already, or could get them.
    #[must_use]
    pub fn can_be_had(&self) -> bool {
        self.is_current() || Uid::effective().is_root()
    }

    /// Whether all user and group numbers of the process are this user's.
    fn is_current(&self) -> bool {
        let users = nix::unistd::getresuid().is_ok_and(|ids| {
            [ids.real, ids.effective, ids.saved].iter().all(|&uid| uid == self.uid)
        });
        let groups = nix::unistd::getresgid().is_ok_and(|ids| {
            [ids.real, ids.effective, ids.saved].iter().all(|&gid| gid == self.gid)
        });
        users && groups
    }

    /// Makes the process this user, with all its threads, and checks that nothing leads back. Does nothing if the process
    /// is this user.
    ///
    /// # Errors
    /// `EPERM`: the process is not root, or may not change its user (`CAP_SETUID`, `CAP_SETGID`), as in some containers.
    /// `Other`: the process could become root again, or has kept rights of root; it must end.
    pub fn assume(&self) -> io::Result<()> {
        if self.is_current() {
            return Ok(());
        }
        // The functions of the C library change all threads; the system calls, the calling thread alone.
        nix::unistd::setgroups(&self.groups)?;
        nix::unistd::setgid(self.gid)?;
        nix::unistd::setuid(self.uid)?;
        if !self.is_current() || nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
            return Err(io::Error::other("the process could become root again"));
        }
        let kept = rustix::thread::capabilities(None)?;
        let kept: CapabilitySet = kept.effective | kept.permitted;
        match kept.is_empty() {
            true => Ok(()),
            false => {
                Err(io::Error::other(format!("the process has kept rights of root: {kept:?}")))
            }
        }
    }

    /// Runs `work` with this user's rights, on a thread of its own, and waits for it. For finding out what a process
    /// will be able to do as this user. Does not change the thread if the process is not root.
    ///
    /// # Errors
    /// Errors of [`OrdinaryUser::assume`], and of starting a thread.
    pub fn try_out<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        if self.is_current() {
            return Ok(work());
        }
        on_own_thread(|| {
            let raw = |gid: &Gid| rustix::fs::Gid::from_raw(gid.as_raw());
            let groups: Vec<_> = self.groups.iter().map(raw).collect();
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_gid(raw(&self.gid))?;
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(self.uid.as_raw()))?;
            Ok(work())
        })?
    }
}

impl fmt::Display for OrdinaryUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.numbers())
    }
}

fn find_group(text: &str) -> Result<Gid, String> {
    if let Some(gid) = text.parse().ok().filter(|&gid| gid != u32::MAX) {
        return Ok(Gid::from_raw(gid));
    }
    let entry = Group::from_name(text).map_err(|error| format!("cannot look '{text}' up: {error}"));
    let no_group = || format!("there is no group '{text}'; write a name, or a number");
    Ok(entry?.ok_or_else(no_group)?.gid)
}

fn groups_of(entry: &User) -> nix::Result<Vec<Gid>> {
    let name = CString::new(entry.name.as_str()).map_err(|_| nix::Error::EINVAL)?;
    nix::unistd::getgrouplist(&name, entry.gid)
}

/// Does something to files with the rights of `user`, if there is one and this process could be that user.
///
/// # Errors
/// Those of `work`, and of [`OrdinaryUser::try_out`].
pub fn with_rights_of<R: Send>(
    user: Option<&OrdinaryUser>,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    match user {
        Some(user) => user.try_out(work)?,
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_or_numbers_and_never_root() {
        let nobody = OrdinaryUser::parse("nobody").unwrap();
        assert_eq!(OrdinaryUser::parse(&nobody.uid.to_string()).unwrap().groups, nobody.groups);
        let numbers = OrdinaryUser::parse("4000000:4000001").unwrap();
        assert_eq!((numbers.uid.as_raw(), numbers.gid.as_raw()), (4_000_000, 4_000_001));
        assert_eq!(numbers.groups, [numbers.gid]);
        let same = OrdinaryUser::parse(&nobody.all_numbers()).unwrap();
        assert_eq!((same.uid, same.gid, same.groups), (nobody.uid, nobody.gid, nobody.groups));
        assert_eq!(numbers.to_string(), "4000000:4000001 (4000000:4000001)");
        for (wrong, remedy) in [
            ("no-such-user", "1000:1000"),
            ("4000000", "4000000:4000000"),
            ("nobody:no-such-group", "no group"),
            ("root", "www-data"),
            ("0:0", "www-data"),
            ("4294967295:1", "www-data"),
            ("", "1000:1000"),
            (":1", "1000:1000"),
        ] {
            let told = OrdinaryUser::parse(wrong).unwrap_err();
            assert!(told.contains(remedy), "{wrong}: {told}");
        }
    }

    #[test]
    fn what_is_tried_out_changes_its_own_thread_alone() {
        let user = OrdinaryUser::parse("4000000:4000001").unwrap();
        let ids = || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let before = ids();
        match user.try_out(ids) {
            Ok(within) => assert_eq!(within, (4_000_000, 4_000_001)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                assert!(!user.can_be_had() || user.assume().is_err());
                drover_testing::skip!("only root can become another user");
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(ids(), before);
    }
}
