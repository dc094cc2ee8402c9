//! The parsers of addresses that a server listens at. What a name leads to is looked up once in the life of a process.

use drover_server::Listen;

use super::remembered::Remembered;
use crate::cli::listen::{resolve, unix_socket};

pub(super) fn address(text: &str) -> Result<Listen, String> {
    static KNOWN: Remembered<Listen> = Remembered::new();
    KNOWN.find(text, || Ok(Listen { name: text.to_owned(), addresses: resolve(text)?, unix: None }))
}

pub(super) fn address_or_path(text: &str) -> Result<Listen, String> {
    match unix_socket(text) {
        Some(unix) => {
            Ok(Listen { name: text.to_owned(), addresses: Vec::new(), unix: Some(unix?) })
        }
        None => address(text),
    }
}
