//! Hashes of passwords, as `htpasswd -B` and `argon2 -e` write them, and what it costs to hold a password against one.

use std::collections::TryReserveError;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use bcrypt::HashParts;
use subtle::ConstantTimeEq;

/// The costs of bcrypt that there are: twice as many rounds for each.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;

/// How many bytes of a password bcrypt takes.
const BCRYPT_BYTES: usize = 72;

/// The most memory that verifying one password may take: what the most careful preset of libsodium takes.
const MEMORY_MOST: u64 = 1 << 30;

/// The hash of a password, whose form has been checked.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum StoredHash {
    Bcrypt { cost: u32, hash: String },
    Argon2(Box<Argon2Hash>),
}

/// A hash of argon2.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Argon2Hash {
    kind: Argon2Kind,
    salt: Vec<u8>,
    output: Vec<u8>,
}

/// What the time depends on that argon2 takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argon2Kind {
    algorithm: Algorithm,
    version: Version,
    params: Params,
}

/// What the time depends on that it takes to verify a password: it is the same for all hashes of a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HashKind<'h> {
    Bcrypt { cost: u32 },
    Argon2(&'h Argon2Kind),
}

impl StoredHash {
    /// Reads a hash.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right; never the hash.
    pub(super) fn parse(hash: &str) -> Result<StoredHash, String> {
        if ["$2a$", "$2b$", "$2y$"].iter().any(|it| hash.starts_with(it)) {
            let cost = hash.parse::<HashParts>().map(|parts| parts.get_cost());
            return match cost {
                Ok(cost) if BCRYPT_COSTS.contains(&cost) => {
                    Ok(StoredHash::Bcrypt { cost, hash: hash.into() })
                }
                _ => Err("this hash of bcrypt is not whole".into()),
            };
        }
        if hash.starts_with("$argon2") {
            let hash = Argon2Hash::parse(hash).ok_or("this hash of argon2 is not whole")?;
            let memory = hash.memory();
            if memory > MEMORY_MOST {
                return Err(format!(
                    "verifying this hash of argon2 takes {} MiB of memory, and {} are the most; write one with 'argon2 \
                     SALT -id -k 65536 -e' (64 MiB)",
                    memory >> 20,
                    MEMORY_MOST >> 20
                ));
            }
            return Ok(StoredHash::Argon2(Box::new(hash)));
        }
        Err("the password is stored in no form that is safe; write it with 'htpasswd -B' (bcrypt), or as $argon2id$…".into())
    }

    pub(super) fn kind(&self) -> HashKind<'_> {
        match self {
            StoredHash::Bcrypt { cost, .. } => HashKind::Bcrypt { cost: *cost },
            StoredHash::Argon2(hash) => HashKind::Argon2(&hash.kind),
        }
    }

    /// The memory that it takes to verify a password, in bytes.
    pub(super) fn memory(&self) -> u64 {
        match self {
            StoredHash::Bcrypt { .. } => 0,
            StoredHash::Argon2(hash) => hash.memory(),
        }
    }

    /// Whether this form of hash takes all of a password into account. bcrypt takes 72 bytes, and those before a NUL: passwords
    /// that differ behind that would be one, so none of them is taken.
    pub(super) fn takes_all_of(&self, password: &[u8]) -> bool {
        match self {
            StoredHash::Bcrypt { .. } => password.len() <= BCRYPT_BYTES && !password.contains(&0),
            StoredHash::Argon2(_) => true,
        }
    }

    /// Whether it is the hash of a password. Takes as long for a wrong one, and for one that is never right.
    ///
    /// # Errors
    /// There is not as much memory as that takes.
    pub(super) fn verify(&self, password: &[u8]) -> Result<bool, TryReserveError> {
        let is_right = match self {
            StoredHash::Bcrypt { hash, .. } => bcrypt::verify(password, hash).unwrap_or(false),
            StoredHash::Argon2(hash) => hash.verify(password)?,
        };
        Ok(is_right && self.takes_all_of(password))
    }
}

impl Argon2Hash {
    fn parse(hash: &str) -> Option<Argon2Hash> {
        let hash = PasswordHash::new(hash).ok()?;
        let (salt, output) =
            (hash.salt.as_deref()?.to_vec(), hash.hash.as_ref()?.as_bytes().to_vec());
        let algorithm = Algorithm::new(hash.algorithm.as_str()).ok()?;
        let version = hash.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
        let params = Params::try_from(&hash).ok()?;
        let is_salt = salt.len() >= argon2::MIN_SALT_LEN;
        is_salt.then_some(Argon2Hash {
            kind: Argon2Kind { algorithm, version, params },
            salt,
            output,
        })
    }

    fn memory(&self) -> u64 {
        u64::from(self.kind.params.m_cost()) * Block::SIZE as u64
    }

    fn verify(&self, password: &[u8]) -> Result<bool, TryReserveError> {
        let Argon2Kind { algorithm, version, params } = self.kind.clone();
        let count = params.block_count();
        let mut memory = Vec::new();
        memory.try_reserve_exact(count)?;
        memory.resize(count, Block::new());
        let hasher = Argon2::new(algorithm, version, params);
        let mut output = vec![0; self.output.len()];
        let hashed = hasher.hash_password_into_with_memory(
            password,
            &self.salt,
            &mut output,
            &mut memory[..],
        );
        Ok(hashed.is_ok() && bool::from(output.ct_eq(&self.output)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bcrypt_of(password: &str) -> StoredHash {
        StoredHash::parse(&bcrypt::hash(password, 4).unwrap()).unwrap()
    }

    #[test]
    fn bcrypt_takes_no_password_that_it_would_cut() {
        let longest = "p".repeat(BCRYPT_BYTES);
        let hash = bcrypt_of(&longest);
        assert_eq!(hash.verify(longest.as_bytes()), Ok(true));
        assert_eq!(hash.verify(format!("{longest}q").as_bytes()), Ok(false));
        assert_eq!(hash.verify(&longest.as_bytes()[1..]), Ok(false));
        // The hash of a longer one was made of its first 72 bytes.
        let longer = format!("{longest}q");
        assert_eq!(bcrypt_of(&longer).verify(longer.as_bytes()), Ok(false));
        assert_eq!(bcrypt_of(&longer).verify(longest.as_bytes()), Ok(true));
        // bcrypt begins a short password anew behind its NUL.
        let hash = bcrypt_of("ab");
        assert_eq!(hash.verify(b"ab"), Ok(true));
        for cut in [&b"ab\0"[..], b"ab\0ab", b"ab\0x"] {
            assert_eq!(hash.verify(cut), Ok(false), "{cut:?}");
        }
    }

    #[test]
    fn argon2_has_all_forms_and_takes_every_byte() {
        // As libargon2 makes them, of "password" and salt "somesalt"; the first is the example in its README.
        for hash in [
            "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG",
            "$argon2id$v=19$m=256,t=1,p=2$c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg",
        ] {
            let hash = StoredHash::parse(hash).unwrap();
            assert_eq!(hash.verify(b"password"), Ok(true));
            for wrong in [&b"passwor"[..], b"password\0", b"", &[b'p'; 100]] {
                assert_eq!(hash.verify(wrong), Ok(false), "{wrong:?}");
            }
        }
    }

    #[test]
    fn a_hash_that_takes_too_much_memory_is_refused_with_what_takes_less() {
        let with = |memory: u64| {
            StoredHash::parse(&format!(
                "$argon2id$v=19$m={memory},t=1,p=1$c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg"
            ))
        };
        assert_eq!(with(1 << 20).ok().map(|hash| hash.memory()), Some(1 << 30));
        for memory in [(1 << 20) + 1, u64::from(u32::MAX)] {
            let error = with(memory).err().unwrap();
            assert!(error.contains("1024 are the most") && error.contains("-k 65536"), "{error}");
        }
        assert!(with(1 << 33).is_err());
    }

    #[test]
    fn what_is_no_whole_hash_is_refused() {
        let end = "c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg";
        for hash in [
            format!("$argon2x$v=19$m=256,t=1,p=1${end}"),
            format!("$argon2id$v=20$m=256,t=1,p=1${end}"),
            format!("$argon2id$v=19$m=1,t=1,p=1${end}"),
            "$argon2id$v=19$m=256,t=1,p=1$c29tZQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg"
                .into(),
            "$argon2id$v=19$m=256,t=1,p=1$c29tZXNhbHQ".into(),
        ] {
            let error = StoredHash::parse(&hash).err().unwrap();
            assert_eq!(error, "this hash of argon2 is not whole", "{hash}");
        }
    }
}
