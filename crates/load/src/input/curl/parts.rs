//! The parts of a form as `--form` has them: `NAME=TEXT`, `NAME=@FILE` and `NAME=<FILE`, each with `;type=…` and
//! `;filename=…`.

use crate::input::form::Part;
use crate::input::text::ReadFile;

/// Types that curl knows by the ends of files' names.
const TYPES: [(&str, &str); 10] = [
    (".gif", "image/gif"),
    (".jpg", "image/jpeg"),
    (".jpeg", "image/jpeg"),
    (".png", "image/png"),
    (".svg", "image/svg+xml"),
    (".txt", "text/plain"),
    (".htm", "text/html"),
    (".html", "text/html"),
    (".pdf", "application/pdf"),
    (".xml", "application/xml"),
];

/// The part of `--form-string`, in which no character means anything.
///
/// # Errors
/// One line, if it has no name.
pub(super) fn literal(text: &str) -> Result<Part, String> {
    let (name, content) = split(text)?;
    Ok(Part { name, content: content.into(), ..Part::default() })
}

/// The part of `--form`.
///
/// # Errors
/// One line that names what cannot be read.
pub(super) fn read(text: &str, read: &mut ReadFile) -> Result<Part, String> {
    let (name, content) = split(text)?;
    let (source, content) = match content.chars().next() {
        Some(sign @ ('@' | '<')) => (Some(sign), &content[1..]),
        // The beginning and the end of a part that has parts.
        Some('(' | '=') => return Err(odd(text)),
        _ => (None, content),
    };
    let (word, rest) = word(content).ok_or_else(|| odd(text))?;
    let mut part = Part { name, ..Part::default() };
    parameters(&mut part, rest).ok_or_else(|| odd(text))?;
    if source.is_none() {
        part.content = word.into_bytes();
        guess_type(&mut part, None);
        return Ok(part);
    }
    if word == "-" {
        return Err(format!("--form '{text}': stdin is not read: give a file"));
    }
    // A comma stands between several files.
    if word.contains(',') && !content.trim_start().starts_with('"') {
        return Err(odd(text));
    }
    part.content = read(&word)?;
    if source == Some('@') {
        let base = word.rsplit('/').next().unwrap_or_default();
        part.file_name.get_or_insert_with(|| base.to_string());
        guess_type(&mut part, Some(&word));
        return Ok(part);
    }
    // The text of a file has no name, and no type that all texts have.
    part.file_name = None;
    if part.content_type.is_none() {
        part.content_type = type_of(&word).filter(|it| *it != "text/plain").map(str::to_string);
    }
    Ok(part)
}

/// Reads `;type=…;filename=…` into a part; `None`: it is something else.
fn parameters(part: &mut Part, mut text: &str) -> Option<()> {
    while let Some(parameter) = text.strip_prefix(';') {
        let (place, value) = match parameter.trim_start().split_once('=')? {
            ("type", value) => (&mut part.content_type, value),
            ("filename", value) => (&mut part.file_name, value),
            _ => return None,
        };
        let (value, rest) = word(value)?;
        *place = Some(value);
        text = rest;
    }
    part.content_type.as_deref().is_none_or(is_type).then_some(())
}

/// Gives a part with the name of a file a type, unless it has one; `path`: it is a file.
fn guess_type(part: &mut Part, path: Option<&str>) {
    if let (Some(file), None) = (&part.file_name, &part.content_type) {
        let guess = type_of(file).or_else(|| type_of(path?));
        let guess = guess.or(path.map(|_| "application/octet-stream"));
        part.content_type = guess.map(str::to_string);
    }
}

fn split(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, content)) if !name.is_empty() => Ok((name.to_string(), content)),
        _ => Err(odd(text)),
    }
}

/// A word, quoted or up to a `;`, and what follows it.
fn word(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches(|it: char| it.is_ascii_whitespace());
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        return Some((
            word.trim_end_matches(|it: char| it.is_ascii_whitespace()).to_string(),
            rest,
        ));
    };
    let mut word = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let rest = quoted[at + 1..].trim_start_matches(|it: char| it.is_ascii_whitespace());
                return (rest.is_empty() || rest.starts_with(';')).then_some((word, rest));
            }
            '\\' if quoted[at + 1..].starts_with(['\\', '"']) => {
                word.extend(letters.next().map(|it| it.1))
            }
            _ => word.push(letter),
        }
    }
    None
}

/// Whether `text` is a media type without parameters.
fn is_type(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&it))
    };
    text.split_once('/').is_some_and(|(major, minor)| is_name(major) && is_name(minor))
}

fn type_of(file: &str) -> Option<&'static str> {
    let file = file.to_ascii_lowercase();
    TYPES.iter().find(|(end, _)| file.ends_with(end)).map(|(_, media_type)| *media_type)
}

fn odd(text: &str) -> String {
    format!("--form '{text}': write NAME=TEXT or NAME=@FILE, with ;type=TYPE and ;filename=NAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Result<Part, String> {
        read(text, &mut |file| Ok(format!("<{file}>").into_bytes()))
    }

    #[track_caller]
    fn is(text: &str, expected: (&str, Option<&str>, Option<&str>, &str)) {
        let part = part(text).unwrap();
        let content = String::from_utf8(part.content).unwrap();
        let found =
            (&part.name[..], part.file_name.as_deref(), part.content_type.as_deref(), &content[..]);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn parts_are_texts_and_files() {
        is("a=b", ("a", None, None, "b"));
        is("a= b =c ", ("a", None, None, "b =c"));
        is("a=", ("a", None, None, ""));
        is("a=\"b;\\\"\\\\\\n\" ; type=x/y+z", ("a", None, Some("x/y+z"), "b;\"\\\\n"));
        is("a=b;filename=c.PNG", ("a", Some("c.PNG"), Some("image/png"), "b"));
        is("a=b;filename=c", ("a", Some("c"), None, "b"));
        is("a=@d/f.html", ("a", Some("f.html"), Some("text/html"), "<d/f.html>"));
        is("a=@\"d/f;,g\"", ("a", Some("f;,g"), Some("application/octet-stream"), "<d/f;,g>"));
        is("a=@f.txt;filename=\"g\";type=a/b", ("a", Some("g"), Some("a/b"), "<f.txt>"));
        is("a=<f.txt;filename=g", ("a", None, None, "<f.txt>"));
        is("a=<f.png", ("a", None, Some("image/png"), "<f.png>"));
        assert_eq!(literal("a=@b;c ").unwrap().content, b"@b;c ");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "a",
            "=b",
            "a=b;c",
            "a=b;type=x",
            "a=b;type=x/y; charset=z",
            "a=\"b\"c",
            "a=\"b",
            "a=@-",
            "a=@b,c",
            "a=(",
            "a==)",
            "a=b;headers=x",
            "a=b;encoder=base64",
        ] {
            let error = part(text).unwrap_err();
            assert!(error.contains("--form") && !error.contains('\n'), "{text}: {error}");
        }
        assert!(read("a=@b", &mut |_| Err("gone".to_string())).unwrap_err().contains("gone"));
    }
}
