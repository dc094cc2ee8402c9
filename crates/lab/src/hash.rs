//! Hashes that find accidental changes. They do not protect against forgery.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;

use twox_hash::XxHash64;

/// A hash of bytes, in hexadecimal digits (XXH64). It finds accidental changes and does not protect against forgery.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> String {
    let mut hasher = XxHash64::default();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// The [`hash_bytes`] of a file's content.
///
/// # Errors
/// What the file system says.
pub fn hash_file(path: &Path) -> io::Result<String> {
    let mut hasher = XxHash64::default();
    let mut file = File::open(path)?;
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            n => hasher.write(&block[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_hash_of_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "content").unwrap();
        assert_eq!(hash_file(file.path()).unwrap(), hash_bytes(b"content"));
        assert_ne!(hash_bytes(b"content"), hash_bytes(b"contend"));
    }
}
