//! Name and password are what a plain decoder finds in the field. Of a file of users, each has a name and a hash that is whole;
//! what is wrong with a file is said without its hashes.
//!
//! The first line of an input is the value of Authorization, the rest is the file.
#![no_main]

use drover_server::fuzzing;
use libfuzzer_sys::fuzz_target;

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes in base64 (RFC 4648), of which there is one form only.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bits = String::new();
    let letters = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    for letter in letters {
        bits += &format!("{:06b}", LETTERS.iter().position(|it| it == letter)?);
    }
    let whole = bits.len() / 8 * 8;
    let is_right = text.len() % 4 == 0 && !bits[whole..].contains('1') && bits.len() - whole < 6;
    let padding = text.len() - letters.len();
    if !is_right || padding != (4 - letters.len() % 4) % 4 {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&bits[at..at + 8], 2).ok();
    (0..whole).step_by(8).map(byte).collect()
}

/// What the field says, by a plain decoder.
fn pair(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = field.split_at_checked(6)?;
    let pair = decoded(rest.trim_ascii()).filter(|_| scheme.eq_ignore_ascii_case(b"basic "))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let (name, password) = (&pair[..colon], &pair[colon + 1..]);
    let is_plain = !name.iter().any(|byte| *byte < 0x20 || *byte == 0x7f);
    is_plain.then(|| (name.to_vec(), password.to_vec()))
}

/// Whether a hash is whole, as far as its letters tell.
fn is_whole(hash: &str) -> bool {
    let is_of = |text: &str, more: &[u8]| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    let parts: Vec<&str> = hash.split('$').collect();
    match parts[..] {
        ["", "2a" | "2b" | "2y", cost, rest] => {
            let cost = cost.parse::<u8>().is_ok_and(|it| (4..=31).contains(&it)) && cost.len() == 2;
            cost && rest.len() == 53 && is_of(rest, b"./")
        }
        ["", kind, .., salt, output] => {
            kind.starts_with("argon2") && is_of(salt, b"+/") && is_of(output, b"+/")
        }
        _ => false,
    }
}

fuzz_target!(|input: &[u8]| {
    let line_end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (field, file) = input.split_at(line_end);
    assert_eq!(fuzzing::credentials(field), pair(field));

    let Ok(text) = std::str::from_utf8(file.get(1..).unwrap_or_default()) else { return };
    let lines = text.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|it| !it.is_empty() && !it.starts_with('#')).collect();
    let users: Vec<_> = lines.iter().filter_map(|line| line.split_once(':')).collect();
    match fuzzing::user_names(text) {
        Ok(names) => {
            let mut own: Vec<_> = users.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
            own.sort();
            assert!(!names.is_empty() && own.len() == lines.len());
            assert_eq!(own, names);
            assert!(users.iter().all(|(_, hash)| is_whole(hash)), "{users:?}");
        }
        Err(told) => {
            // A dollar sign begins a hash; other long texts may be words of the message.
            let is_secret = |it: &str| {
                it.len() > 30
                    && it.starts_with('$')
                    && users.iter().all(|(name, _)| !name.contains(it))
            };
            let mut secrets = users.iter().map(|(_, hash)| *hash).filter(|it| is_secret(it));
            assert!(secrets.all(|hash| !told.contains(hash)), "{told}");
        }
    }
});
