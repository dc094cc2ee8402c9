//! The parsers of addresses that a server listens at. What a name leads to is looked up once in the life of a process.

use drover_server::Listen;

use super::remembered::Remembered;
use crate::cli::listen::{resolve, unix_socket};

pub(super) fn address(text: &str) -> Result<Listen, String> {
    static KNOWN: Remembered<Listen> = Remembered::new();
    KNOWN.find(text, || {
        let addresses = resolve(text)?;
        Ok(Listen { name: text.to_owned(), addresses, unix: None, is_tls: None })
    })
}

pub(super) fn address_or_path(text: &str) -> Result<Listen, String> {
    let (place, is_tls) = match text.rsplit_once(',') {
        Some((place, "tls")) => (place, Some(true)),
        Some((place, "plain")) => (place, Some(false)),
        _ => (text, None),
    };
    let listen = match unix_socket(place) {
        Some(unix) => {
            Listen { name: String::new(), addresses: Vec::new(), unix: Some(unix?), is_tls }
        }
        None => address(place)?,
    };
    Ok(Listen { name: text.to_owned(), is_tls, ..listen })
}
