//! Users and the hashes of their passwords, as `htpasswd -B` and `argon2 -e` write them.

use std::collections::BTreeMap;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier};
use bcrypt::HashParts;

use crate::auth::credentials::{Credentials, TagKey};

/// The costs of bcrypt that there are: twice as many rounds for each.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;

/// Users by name, at least one.
#[derive(PartialEq, Eq)]
pub(crate) struct Users(BTreeMap<Vec<u8>, StoredHash>);

/// The hash of a password, whose form has been checked.
#[derive(PartialEq, Eq)]
enum StoredHash {
    Bcrypt(String),
    Argon2(String),
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
        Ok(Users(users))
    }

    /// Whether these are the name and the password of a user. Takes tens of milliseconds. A name that is none of a user's
    /// is verified against the hash of some user, always the same one, so that the time does not tell whether there is such a
    /// user.
    pub(crate) fn verify(&self, credentials: &Credentials, key: &TagKey) -> bool {
        let known = self.0.get(credentials.name());
        let hash = known.or_else(|| {
            let number = key.tag(credentials.name()).prefix() % self.0.len() as u64;
            self.0.values().nth(number as usize)
        });
        let is_right = hash.is_some_and(|hash| hash.verify(credentials.password()));
        is_right && known.is_some()
    }
}

impl StoredHash {
    fn parse(hash: &str) -> Result<StoredHash, String> {
        if ["$2a$", "$2b$", "$2y$"].iter().any(|it| hash.starts_with(it)) {
            let cost = hash.parse::<HashParts>().map(|parts| parts.get_cost());
            return match cost {
                Ok(cost) if BCRYPT_COSTS.contains(&cost) => Ok(StoredHash::Bcrypt(hash.into())),
                _ => Err("this hash of bcrypt is not whole".into()),
            };
        }
        if hash.starts_with("$argon2") {
            let parsed = PasswordHash::new(hash).ok();
            let is_whole = parsed.is_some_and(|hash| {
                hash.salt.is_some() && hash.hash.is_some() && Params::try_from(&hash).is_ok()
            });
            return match is_whole {
                true => Ok(StoredHash::Argon2(hash.into())),
                false => Err("this hash of argon2 is not whole".into()),
            };
        }
        Err("the password is stored in no form that is safe; write it with 'htpasswd -B' (bcrypt), or as $argon2id$…".into())
    }

    fn verify(&self, password: &[u8]) -> bool {
        match self {
            StoredHash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            StoredHash::Argon2(hash) => {
                Argon2::default().verify_password(password, hash.as_str()).is_ok()
            }
        }
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
        let credentials = Credentials::of_pair(pair.as_bytes().to_vec()).unwrap();
        users.verify(&credentials, &TagKey::random().unwrap())
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
