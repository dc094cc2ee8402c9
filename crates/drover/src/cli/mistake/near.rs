//! Names that differ from a word by a typing error.

/// Words of this many letters may have two errors.
const LONG: usize = 8;

/// The name that the user probably meant: one typing error away, or two if both words are long. The first letter must
/// match, since people notice a wrong one. Words of one or two letters are too short to guess.
pub(super) fn near<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_lowercase().replace('_', "-");
    let distance = |name: &str| strsim::damerau_levenshtein(&word, name);
    let limit = |name: &str| match name.len().min(word.len()) {
        0..=2 => 0,
        3..LONG => 1,
        _ => 2,
    };
    let names = names.into_iter().filter(|name| name.chars().next() == word.chars().next());
    let near = names.map(|name| (distance(name), name)).filter(|(far, name)| *far <= limit(name));
    near.min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::near;

    const NAMES: [&str; 9] =
        ["lab", "pin", "port", "host", "header", "workers", "dispatch", "mechanisms", "max-fields"];

    #[test]
    fn a_typing_error_is_seen_through() {
        for (word, name) in [
            ("labs", "lab"),
            ("worker", "workers"),
            ("wokrers", "workers"),
            ("prot", "port"),
            ("headers", "header"),
            ("Workers", "workers"),
            ("dispathc", "dispatch"),
            ("mechnism", "mechanisms"),
            ("max_fields", "max-fields"),
            ("maxfield", "max-fields"),
        ] {
            assert_eq!(near(word, NAMES), Some(name), "{word}");
        }
    }

    #[test]
    fn nothing_is_guessed_of_a_word_that_is_far() {
        for word in [
            "bind",
            "man",
            "https",
            "spa",
            "sort",
            "cost",
            "pi",
            "la",
            "p",
            "",
            "work",
            "max",
            "heads",
            "patch",
            "mechanic",
            "dispose",
            "ping-pong",
        ] {
            assert_eq!(near(word, NAMES), None, "{word}");
        }
    }
}
