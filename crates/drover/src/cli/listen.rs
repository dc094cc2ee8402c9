//! Addresses to listen on, as flags take them: `127.0.0.1:8080`, `8080`, `:8080`.

use std::borrow::Cow;

/// `text` as HOST:PORT. A port alone gets the loopback address, so that nobody opens a server to others by accident.
/// A port after a colon (`:8080`) gets every IPv4 address.
pub(super) fn with_host(text: &str) -> Cow<'_, str> {
    if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text}").into()
    } else if text.starts_with(':') && text[1..].parse::<u16>().is_ok() {
        format!("0.0.0.0{text}").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::with_host;

    #[test]
    fn a_host_that_is_missing_is_filled_in() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("[::]:8080", "[::]:8080"),
            ("localhost:80", "localhost:80"),
            ("::", "::"),
            ("", ""),
        ] {
            assert_eq!(with_host(text), address);
        }
    }
}
