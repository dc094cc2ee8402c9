//! Which bytes names and values may have (RFC 9113 section 8.2.1, RFC 9110 sections 5.1 and 5.5).

const NAME: u8 = 1;
const VALUE: u8 = 2;
const METHOD: u8 = 4;
const PATH: u8 = 8;
const SCHEME: u8 = 16;

/// What each byte may be part of.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let it = byte as u8;
        // Visible characters, and what is not ASCII.
        if it > b' ' && it != 0x7f {
            classes[byte] |= VALUE | PATH;
        }
        if it == b' ' || it == b'\t' {
            classes[byte] |= VALUE;
        }
        if it.is_ascii_alphanumeric() {
            classes[byte] |= METHOD | SCHEME;
            if !it.is_ascii_uppercase() {
                classes[byte] |= NAME;
            }
        }
        byte += 1;
    }
    let (marks, mut at) = (b"!#$%&'*+-.^_`|~", 0);
    while at < marks.len() {
        classes[marks[at] as usize] |= NAME | METHOD;
        at += 1;
    }
    let (marks, mut at) = (b"+-.", 0);
    while at < marks.len() {
        classes[marks[at] as usize] |= SCHEME;
        at += 1;
    }
    classes
};

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |so_far, byte| so_far & CLASSES[usize::from(*byte)]) != 0
}

/// Whether a field may have this name: a token in lower case.
pub(super) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && all(name, NAME)
}

/// Whether a field may have this value: no control characters but tabs, and no white space around it.
pub(super) fn is_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    all(value, VALUE) && !is_space(value.first()) && !is_space(value.last())
}

/// Whether `method` is a token.
pub(super) fn is_method(method: &[u8]) -> bool {
    !method.is_empty() && all(method, METHOD)
}

/// Whether `path` can stand in a request line. Whether it can be a path is for the reader of that line to say.
pub(super) fn is_path(path: &[u8]) -> bool {
    all(path, PATH)
}

/// Whether `scheme` is one (RFC 3986 section 3.1).
pub(super) fn is_scheme(scheme: &[u8]) -> bool {
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && all(scheme, SCHEME)
}
