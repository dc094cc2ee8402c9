//! What a client has asked for, as far as somebody who observes repeats it.

use drover_http1::Request;

/// The longest first line of an unreadable request that is repeated.
const REPEATED_MOST: usize = 1024;

/// What observers want to know of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct FactsWanted {
    /// The fields, in the order in which [`RequestFacts`] has them.
    pub(crate) fields: Vec<String>,
    /// Whether the host is wanted.
    pub(crate) host: bool,
}

/// What the client has sent, as far as observers repeat it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFacts {
    /// The method as it was sent; empty if the request could not be read.
    pub(crate) method: String,
    /// The host that it names, if that is wanted.
    pub(crate) host: Option<Vec<u8>>,
    /// The target as it was sent; the first line of a request that could not be read.
    pub(crate) target: Vec<u8>,
    pub(crate) version: &'static str,
    /// The value of each wanted field, in the order of [`FactsWanted`]; empty where the request lacks it.
    pub(crate) fields: Vec<Vec<u8>>,
}

impl RequestFacts {
    pub(crate) fn of(request: &Request<'_>, wanted: &FactsWanted) -> RequestFacts {
        let mut fields: Vec<Option<Vec<u8>>> = vec![None; wanted.fields.len()];
        for (name, value) in request.fields() {
            for (field, wanted) in fields.iter_mut().zip(&wanted.fields) {
                if wanted.eq_ignore_ascii_case(name) {
                    match field {
                        None => *field = Some(value.to_vec()),
                        // Several lines are one list (RFC 9110 section 5.3).
                        Some(list) => list.extend_from_slice(&[&b", "[..], value].concat()),
                    }
                }
            }
        }
        RequestFacts {
            method: request.method_text().to_owned(),
            host: request.host.filter(|_| wanted.host).map(<[u8]>::to_vec),
            target: request.target.to_vec(),
            version: request.version.name(),
            fields: fields.into_iter().map(Option::unwrap_or_default).collect(),
        }
    }

    /// A request that is none: its first line, as far as it came. Empty lines may come before it (RFC 9112 section 2.2).
    pub(crate) fn unreadable(input: &[u8]) -> RequestFacts {
        let is_end = |byte: &u8| matches!(byte, 13 | 10);
        let empty = input.iter().take_while(|byte| is_end(byte)).count();
        let input = &input[empty..];
        let end = input.iter().position(is_end).unwrap_or(input.len());
        RequestFacts { target: input[..end.min(REPEATED_MOST)].to_vec(), ..RequestFacts::default() }
    }

    /// The request line, or what came in its place.
    pub(crate) fn line(&self) -> Vec<u8> {
        match self.method.is_empty() {
            true => self.target.clone(),
            false => {
                [self.method.as_bytes(), b" ", &self.target, b" ", self.version.as_bytes()].concat()
            }
        }
    }

    /// The path, and the query with its question mark. A target with scheme and host (RFC 9112 section 3.2.2) has its path
    /// behind them.
    pub(crate) fn path_and_query(&self) -> (&[u8], &[u8]) {
        let target = &self.target[..];
        let find = |text: &[u8], wanted: &[u8]| text.iter().position(|byte| wanted.contains(byte));
        let host = match target.first() {
            Some(b'/' | b'*') | None => None,
            Some(_) => target.windows(3).position(|it| it == b"://").map(|scheme| scheme + 3),
        };
        let path = host
            .map_or(0, |host| find(&target[host..], b"/?").map_or(target.len(), |len| host + len));
        let path_and_query = &target[path..];
        path_and_query.split_at(find(path_and_query, b"?").unwrap_or(path_and_query.len()))
    }

    /// The value of the wanted field with this number; empty if the request lacks it.
    pub(crate) fn field(&self, number: usize) -> &[u8] {
        self.fields.get(number).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_target_is_what_follows_scheme_and_host() {
        for (target, path, query) in [
            ("/a/b?c?d", "/a/b", "?c?d"),
            ("/?a=http://b/c", "/", "?a=http://b/c"),
            ("http://host:80/a?b", "/a", "?b"),
            ("http://host?b", "", "?b"),
            ("http://host", "", ""),
            ("*", "*", ""),
            ("", "", ""),
        ] {
            let facts = RequestFacts { target: target.into(), ..RequestFacts::default() };
            assert_eq!(facts.path_and_query(), (path.as_bytes(), query.as_bytes()), "{target}");
        }
    }
}
