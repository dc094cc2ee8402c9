//! Addresses to listen on, as flags take them: `127.0.0.1:8080`, `8080`, `:8080`, `[fe80::1%eth0]:8080`,
//! `unix:/run/drover.sock,mode=0660`.

use std::borrow::Cow;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use drover_sys::unix_listener::{PATH_MOST, UnixListener};
use drover_sys::zone;

/// The permissions of a socket's file, unless the user says: its user and group may connect.
const MODE: u32 = 0o660;

/// The addresses of `text`, without duplicates.
///
/// # Errors
/// The message says how to write an address.
pub(super) fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = match with_zone(text) {
        Some(address) => vec![address?.into()],
        None => {
            let found = with_host(text).to_socket_addrs();
            let found = found.map_err(|error| {
                format!("{error}; write HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080, or a PORT")
            })?;
            found.collect()
        }
    };
    let mut addresses = Vec::new();
    for address in found.into_iter().map(zone::without_idle_zone) {
        if zone::lacks_zone(address) {
            let (ip, port) = (address.ip(), address.port());
            return Err(format!(
                "a link-local address needs its interface, as in [{ip}%eth0]:{port}"
            ));
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Reads `[fe80::1%eth0]:8080`, and `[fe80::1%25eth0]:8080` as URLs have it (RFC 6874); `None`: the text is something else.
fn with_zone(text: &str) -> Option<Result<SocketAddrV6, String>> {
    let (inside, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (ip, zone) = inside.split_once('%')?;
    let (ip, port) = (ip.parse::<Ipv6Addr>().ok()?, port.parse().ok()?);
    let zone = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
    Some(match zone::interface_of(zone) {
        Ok(interface) => Ok(SocketAddrV6::new(ip, port, 0, interface)),
        Err(_) => Err(format!("there is no interface '{zone}'; 'ip link' lists them")),
    })
}

/// `text` as HOST:PORT. A port alone gets the loopback address, so that nobody opens a server to others by accident.
/// A port after a colon (`:8080`) gets every IPv4 address.
fn with_host(text: &str) -> Cow<'_, str> {
    if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text}").into()
    } else if text.starts_with(':') && text[1..].parse::<u16>().is_ok() {
        format!("0.0.0.0{text}").into()
    } else {
        text.into()
    }
}

/// Reads `unix:PATH` and `unix:PATH,mode=0660`; `None`: the text is something else.
///
/// # Errors
/// The message says how to write it.
pub(super) fn unix_socket(text: &str) -> Option<Result<UnixListener, String>> {
    let text = text.strip_prefix("unix:")?;
    let (path, mode) = match text.rsplit_once(',') {
        Some((path, option)) if option.contains('=') => (path, Some(option)),
        _ => (text, None),
    };
    let mode = mode.map_or(Some(MODE), |option| {
        let digits = option.strip_prefix("mode=")?;
        u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777)
    });
    Some(match mode {
        _ if path.is_empty() || path.len() > PATH_MOST => {
            Err(format!("the path of a unix socket has 1 to {PATH_MOST} bytes"))
        }
        None => Err("write unix:PATH, or unix:PATH,mode=0660 with octal permissions".to_owned()),
        Some(mode) => Ok(UnixListener { path: path.into(), mode }),
    })
}

#[cfg(test)]
mod tests {
    use super::{resolve, unix_socket, with_host};

    #[test]
    fn a_unix_socket_has_a_path_and_perhaps_a_mode() {
        let read = |text: &str| {
            unix_socket(text).map(|it| it.map(|it| (it.path.display().to_string(), it.mode)))
        };
        assert_eq!(read("unix:/a,b"), Some(Ok(("/a,b".to_owned(), 0o660))));
        assert_eq!(read("unix:a,mode=0600"), Some(Ok(("a".to_owned(), 0o600))));
        assert_eq!(read("unix:a,mode=777"), Some(Ok(("a".to_owned(), 0o777))));
        assert_eq!(read("unix"), None);
        for wrong in ["unix:", "unix:a,mode=8", "unix:a,mode=1777", "unix:a,mode=", "unix:a,m=1"] {
            assert!(read(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(read(&format!("unix:{}", "x".repeat(108))).unwrap().is_err());
    }

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

    #[test]
    fn a_zone_is_an_interface_and_is_kept_for_link_local_addresses_alone() {
        let resolve = |text: &str| {
            resolve(text).map(|it| it.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, address) in [
            ("[fe80::1%lo]:80", "[fe80::1%1]:80"),
            ("[fe80::1%25lo]:80", "[fe80::1%1]:80"),
            ("[fe80::1%1]:80", "[fe80::1%1]:80"),
            ("[fe80::1%251]:80", "[fe80::1%1]:80"),
            ("[::1%lo]:80", "[::1]:80"),
            ("[::1%25lo]:0", "[::1]:0"),
            ("[::1]:80", "[::1]:80"),
            (":80", "0.0.0.0:80"),
        ] {
            assert_eq!(resolve(text).as_deref(), Ok(address), "{text}");
        }
        for (text, why) in [
            ("[fe80::1]:80", "needs its interface, as in [fe80::1%eth0]:80"),
            ("[fe80::1%nowhere]:80", "no interface 'nowhere'"),
            ("[fe80::1%]:80", "no interface ''"),
            ("[fe80::1%lo]", "write HOST:PORT"),
            ("[fe80::x%lo]:80", "write HOST:PORT"),
        ] {
            let error = resolve(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
