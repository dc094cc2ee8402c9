//! Users and the hashes of their passwords.

use std::collections::{BTreeMap, TryReserveError};

use crate::auth::credentials::Credentials;
use crate::auth::hashes::StoredHash;

/// Users by name, at least one.
#[derive(PartialEq, Eq)]
pub(crate) struct Users {
    by_name: BTreeMap<Vec<u8>, StoredHash>,
    /// A hash of each kind that users have.
    kinds: Vec<StoredHash>,
}

impl Users {
    /// Reads lines `USER:HASH`. Empty lines, and those that begin with `#`, are passed over.
    ///
    /// # Errors
    /// What is wrong, with the number of the line; never a hash.
    pub(crate) fn parse(text: &str) -> Result<Users, String> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, hash)) = line.split_once(':').filter(|(name, _)| !name.is_empty())
            else {
                return Err(format!(
                    "line {number} is no USER:HASH; 'htpasswd -B FILE USER' writes one"
                ));
            };
            let hash = StoredHash::parse(hash)
                .map_err(|reason| format!("line {number}, user {name:?}: {reason}"))?;
            if users.insert(name.as_bytes().to_vec(), hash).is_some() {
                return Err(format!("line {number}: there is a user {name:?} already"));
            }
        }
        if users.is_empty() {
            return Err("there is no user; 'htpasswd -B FILE USER' adds one".into());
        }
        let mut kinds: Vec<StoredHash> = Vec::new();
        for hash in users.values() {
            if !kinds.iter().any(|other| other.kind() == hash.kind()) {
                kinds.push(hash.clone());
            }
        }
        Ok(Users { by_name: users, kinds })
    }

    /// Whether these are the name and the password of a user. Takes tens of milliseconds: for a wrong password as long as for
    /// a name that no user has, so that the time does not tell which names users have.
    ///
    /// # Errors
    /// There is not as much memory as that takes.
    pub(crate) fn verify(&self, credentials: &Credentials) -> Result<bool, TryReserveError> {
        let (own, others) = self.hashes_for(credentials.name());
        if let Some(own) = own
            && own.verify(credentials.password())?
        {
            return Ok(true);
        }
        for other in others {
            other.verify(credentials.password())?;
        }
        Ok(false)
    }

    /// The hashes that a password for `name` is held against: the user's own, if there is such a user, and if that is not it
    /// one of each other kind that users have.
    fn hashes_for(&self, name: &[u8]) -> (Option<&StoredHash>, impl Iterator<Item = &StoredHash>) {
        let own = self.by_name.get(name);
        let is_other = move |kind: &&StoredHash| own.is_none_or(|own| own.kind() != kind.kind());
        (own, self.kinds.iter().filter(is_other))
    }

    /// Who has a password.
    #[cfg(fuzzing)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.by_name.keys().map(Vec::as_slice)
    }

    /// The memory that it takes to verify a password, in bytes: that of the kind of hash that takes most.
    pub(crate) fn memory(&self) -> u64 {
        self.kinds.iter().map(StoredHash::memory).max().unwrap_or(0)
    }

    /// Whether credentials have the name of a user and a password that the form of that user's hash cannot take as a whole.
    pub(crate) fn would_cut(&self, credentials: &Credentials) -> bool {
        let own = self.by_name.get(credentials.name());
        own.is_some_and(|own| !own.takes_all_of(credentials.password()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2y$04$VJQ8aoYmGQKNHiQdr/rXVOmD9rtBSmkJJOHm9LRGShMqt2w3DOh1G";

    fn hashed(password: &str) -> String {
        bcrypt::hash(password, 4).unwrap()
    }

    fn is(users: &Users, pair: &str) -> bool {
        users.verify(&Credentials::of_pair(pair.as_bytes().to_vec()).unwrap()).unwrap()
    }

    #[test]
    fn an_unknown_name_costs_what_a_known_one_does_whatever_kinds_of_hashes_there_are() {
        let argon2 = |salt: &str| {
            format!(
                "$argon2id$v=19$m=256,t=1,p=2${salt}$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg"
            )
        };
        let text = format!(
            "a:{}\nb:{}\nc:{}\nd:{}\ne:{}\n",
            hashed("a"),
            hashed("b"),
            BCRYPT.replace("$04$", "$05$"),
            argon2("c29tZXNhbHQ"),
            argon2("b3RoZXJzYWx0"),
        );
        let users = Users::parse(&text).unwrap();
        let costs = |name: &str| {
            let (own, others) = users.hashes_for(name.as_bytes());
            let kinds = own.into_iter().chain(others).map(|hash| format!("{:?}", hash.kind()));
            let mut kinds: Vec<String> = kinds.collect();
            kinds.sort();
            kinds
        };
        let unknown = costs("none");
        assert_eq!(unknown.len(), 3);
        for name in ["a", "b", "c", "d", "e", "", "A"] {
            assert_eq!(costs(name), unknown, "{name}");
        }
        assert_eq!(users.memory(), 256 << 10);
        let of_one_kind = Users::parse(&format!("a:{}\nb:{}", hashed("a"), hashed("b"))).unwrap();
        assert_eq!(of_one_kind.kinds.len(), 1);
        assert_eq!(of_one_kind.memory(), 0);
    }

    #[test]
    fn a_password_that_would_be_cut_is_known_as_such() {
        let users = Users::parse(&format!("a:{BCRYPT}")).unwrap();
        let would_cut =
            |pair: &str| users.would_cut(&Credentials::of_pair(pair.as_bytes().to_vec()).unwrap());
        assert!(would_cut(&format!("a:{}", "p".repeat(73))) && would_cut("a:p\0q"));
        assert!(!would_cut("a:p") && !would_cut(&format!("none:{}", "p".repeat(73))));
    }

    #[test]
    fn a_user_has_one_password_and_nobody_else_any() {
        // The example in the README of the reference implementation of Argon2.
        let argon2 = "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG";
        let text =
            format!("# a comment\n\nann:{}\nbob:{}\r\ncy:{argon2}\n", hashed("a:b"), hashed(""));
        let users = Users::parse(&text).unwrap();
        assert!(is(&users, "ann:a:b") && is(&users, "bob:") && is(&users, "cy:password"));
        for pair in
            ["ann:a", "ann:a:b ", "bob:a:b", "none:a:b", "none:", "Ann:a:b", "cy:x", "ann:a\0b"]
        {
            assert!(!is(&users, pair), "{pair}");
        }
    }

    #[test]
    fn what_is_no_file_of_users_is_told_with_its_line_and_no_hash() {
        let cut = &BCRYPT[..59];
        for (text, what) in [
            ("", "no user"),
            ("# ann:x", "no user"),
            ("\nann", "line 2 is no USER:HASH"),
            (&format!(":{BCRYPT}"), "line 1 is no USER:HASH"),
            (&format!("a:{BCRYPT}\na:{BCRYPT}"), "line 2: there is a user \"a\""),
            ("ann:secret", "line 1, user \"ann\": the password is stored in no form that is safe"),
            ("ann:$apr1$x$y", "htpasswd -B"),
            (&format!("ann:{cut}"), "bcrypt is not whole"),
            (&format!("ann:{}", BCRYPT.replace("$04$", "$99$")), "bcrypt is not whole"),
            ("ann:$argon2id$v=19$m=1,t=1,p=1$c29tZXNhbHQ", "argon2 is not whole"),
            ("ann:$argon2id$nonsense", "argon2 is not whole"),
        ] {
            let error = Users::parse(text).err().unwrap();
            assert!(error.contains(what), "{text:?}: {error}");
            assert!(!error.contains("secret") && !error.contains(cut), "{error}");
        }
    }
}
