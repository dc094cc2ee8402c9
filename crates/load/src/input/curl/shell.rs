//! The words of a command line as bash reads it: quotes, `$'…'`, escapes, continued lines, comments.
//!
//! Whatever bash would expand or carry out (variables, substitutions, pipes, redirections, braces, globs that can
//! match) is refused with its name: taken literally, it would make another command than the user's.

type Bytes<'a> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'a, u8>>>;

/// The words of the one command that `text` holds. A word may hold any bytes but NUL.
///
/// # Errors
/// One line that names what cannot be read, and what to do about it.
pub(super) fn words(text: &str) -> Result<Vec<Vec<u8>>, String> {
    // Of a file with Windows' line ends, or pasted from one, only the quoted carriage returns belong to a word.
    let text = text.strip_suffix('\r').unwrap_or(text);
    let mut reader =
        Reader { input: text.as_bytes().iter().copied().peekable(), words: Vec::new(), word: None };
    while let Some(byte) = reader.input.next() {
        reader.take(byte)?;
    }
    reader.end_word()?;
    Ok(reader.words)
}

struct Reader<'a> {
    input: Bytes<'a>,
    words: Vec<Vec<u8>>,
    /// The word that has begun.
    word: Option<Word>,
}

#[derive(Default)]
struct Word {
    bytes: Vec<u8>,
    /// Places of bytes that are not quoted and that bash looks at again when the word is complete.
    special: Vec<(usize, u8)>,
}

impl Reader<'_> {
    /// Takes a byte that is not quoted.
    fn take(&mut self, byte: u8) -> Result<(), String> {
        match byte {
            b' ' | b'\t' => self.end_word(),
            b'\n' => self.end_line(),
            b'\r' if self.input.peek() == Some(&b'\n') => Ok(()),
            b'#' if self.word.is_none() => {
                while self.input.next_if(|byte| *byte != b'\n').is_some() {}
                Ok(())
            }
            b'\\' => self.escaped(),
            b'\'' => self.single_quoted(),
            b'"' => self.double_quoted(),
            b'$' => match self.input.peek() {
                Some(b'\'') => self.ansi_c_quoted(),
                // A text to translate, which has no translation.
                Some(b'"') => {
                    self.input.next();
                    self.double_quoted()
                }
                _ => {
                    self.refuse_expansion()?;
                    self.push(b'$');
                    Ok(())
                }
            },
            b'`' => Err(substitution()),
            b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => Err(format!(
                "'{0}' outside of quotes is for the shell: quote the URL, or leave out what begins with '{0}'",
                byte as char
            )),
            b'~' if self.word.is_none() => {
                Err("'~' stands for a folder that the shell knows: write its path".to_string())
            }
            b'{' | b'}' | b',' | b'.' | b'*' | b'?' | b'[' => {
                let word = self.word.get_or_insert_default();
                word.special.push((word.bytes.len(), byte));
                self.push(byte);
                Ok(())
            }
            _ => {
                self.push(byte);
                Ok(())
            }
        }
    }

    fn push(&mut self, byte: u8) {
        self.word.get_or_insert_default().bytes.push(byte);
    }

    fn end_word(&mut self) -> Result<(), String> {
        let Some(word) = self.word.take() else { return Ok(()) };
        word.check()?;
        self.words.push(word.bytes);
        Ok(())
    }

    /// The end of a line is the end of the command, behind which only comments may come.
    fn end_line(&mut self) -> Result<(), String> {
        self.end_word()?;
        let windows = self.words.last().is_some_and(|word| word == b"^");
        if windows {
            return Err("it is written for Windows' cmd: copy it as cURL (bash)".to_string());
        }
        if self.words.is_empty() {
            return Ok(());
        }
        while let Some(byte) = self.input.next() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'#' => while self.input.next_if(|byte| *byte != b'\n').is_some() {},
                _ => {
                    return Err(
                        "a second command follows in another line: give one command, and end its \
                                lines with '\\'"
                            .to_string(),
                    );
                }
            }
        }
        Ok(())
    }

    /// The byte behind a backslash stands for itself; with the end of a line, the line goes on.
    fn escaped(&mut self) -> Result<(), String> {
        match self.input.next() {
            None => Err("it ends with '\\': its next line is missing".to_string()),
            Some(b'\n') => Ok(()),
            Some(b'\r') if self.input.next_if_eq(&b'\n').is_some() => Ok(()),
            Some(byte) => {
                self.push(byte);
                Ok(())
            }
        }
    }

    fn single_quoted(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        loop {
            match self.input.next().ok_or_else(unmatched)? {
                b'\'' => return Ok(()),
                byte => self.push(byte),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        loop {
            match self.input.next().ok_or_else(unmatched)? {
                b'"' => return Ok(()),
                b'`' => return Err(substitution()),
                b'$' => {
                    self.refuse_expansion()?;
                    self.push(b'$');
                }
                b'\\' => match self.input.next().ok_or_else(unmatched)? {
                    b'\n' => {}
                    byte @ (b'$' | b'`' | b'"' | b'\\') => self.push(byte),
                    byte => {
                        self.push(b'\\');
                        self.push(byte);
                    }
                },
                byte => self.push(byte),
            }
        }
    }

    /// `$'…'`, the form in which browsers write bytes that no other quotes can hold.
    fn ansi_c_quoted(&mut self) -> Result<(), String> {
        self.input.next();
        self.word.get_or_insert_default();
        loop {
            match self.input.next().ok_or_else(unmatched)? {
                b'\'' => return Ok(()),
                b'\\' => {
                    let decoded = escape(&mut self.input)?;
                    self.word.get_or_insert_default().bytes.extend(decoded);
                }
                byte => self.push(byte),
            }
        }
    }

    /// Refuses what bash expands behind a `$`; a `$` before anything else stands for itself.
    fn refuse_expansion(&mut self) -> Result<(), String> {
        match self.input.peek().copied() {
            Some(b'(') => Err(substitution()),
            Some(b'{' | b'[' | b'?' | b'$' | b'!' | b'@' | b'*' | b'#' | b'-') => {
                Err("it holds an expansion ('$…') of the shell: write its value".to_string())
            }
            Some(byte) if byte.is_ascii_alphanumeric() || byte == b'_' => {
                let name: Vec<u8> = self
                    .input
                    .clone()
                    .take_while(|it| it.is_ascii_alphanumeric() || *it == b'_')
                    .collect();
                let name = String::from_utf8_lossy(&name);
                Err(format!("it holds the shell's variable '${name}': write its value"))
            }
            _ => Ok(()),
        }
    }
}

impl Word {
    /// Refuses what bash makes several words of, or the names of files.
    fn check(&self) -> Result<(), String> {
        let places = |byte: u8| self.special.iter().filter(move |it| it.1 == byte).map(|it| it.0);
        if let (Some(open), Some(close)) = (places(b'{').next(), places(b'}').next_back()) {
            let dots: Vec<usize> = places(b'.').collect();
            let ranges = dots.windows(2).filter(|pair| pair[0] + 1 == pair[1]).map(|pair| pair[0]);
            if places(b',').chain(ranges).any(|place| (open..close).contains(&place)) {
                return Err("the shell expands '{…}': put quotes around it".to_string());
            }
        }
        let globs = |it: &&(usize, u8)| matches!(it.1, b'*' | b'?' | b'[');
        let first = self.special.iter().find(globs);
        match first {
            // Behind a colon, as in a URL or a field, it would need a file called `http:…` to match.
            Some(&(at, byte)) if !self.bytes[..at].contains(&b':') => Err(format!(
                "'{}' outside of quotes stands for names of files: put quotes around its word",
                byte as char
            )),
            _ => Ok(()),
        }
    }
}

/// The bytes of an escape in `$'…'`, whose backslash has been read.
fn escape(input: &mut Bytes) -> Result<Vec<u8>, String> {
    let byte = input.next().ok_or_else(unmatched)?;
    Ok(vec![match byte {
        b'a' => 0x07,
        b'b' => 0x08,
        b'e' | b'E' => 0x1b,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' | b'\'' | b'"' | b'?' => byte,
        b'0'..=b'7' => {
            let mut value = u32::from(byte - b'0');
            for _ in 0..2 {
                let digit = input.next_if(|it| (b'0'..=b'7').contains(it));
                value = digit.map_or(value, |digit| value * 8 + u32::from(digit - b'0'));
            }
            // Bash keeps the low eight bits.
            not_nul(value & 0xff)? as u8
        }
        b'x' => not_nul(hexadecimal(input, 2)?)? as u8,
        b'u' => return character(hexadecimal(input, 4)?),
        b'U' => return character(hexadecimal(input, 8)?),
        b'c' => match input.next() {
            Some(letter) if letter.is_ascii_alphabetic() => letter & 0x1f,
            _ => return Err("it holds '\\c' without a letter in $'…' quotes".to_string()),
        },
        other => return Ok(vec![b'\\', other]),
    }])
}

/// The value of one to `most` hexadecimal digits.
fn hexadecimal(input: &mut Bytes, most: usize) -> Result<u32, String> {
    let mut value = None;
    for _ in 0..most {
        let digit = input.peek().and_then(|it| (*it as char).to_digit(16));
        let Some(digit) = digit else { break };
        input.next();
        value = Some(value.unwrap_or(0) << 4 | digit);
    }
    value.ok_or_else(|| "it holds an escape without digits in $'…' quotes".to_string())
}

fn character(code: u32) -> Result<Vec<u8>, String> {
    let letter = char::from_u32(not_nul(code)?);
    let letter = letter.ok_or_else(|| format!("'\\u{code:x}' in $'…' quotes is no character"))?;
    Ok(letter.to_string().into_bytes())
}

/// Bash ends the word at a NUL, which no argument can hold.
fn not_nul(value: u32) -> Result<u32, String> {
    if value == 0 {
        return Err("it holds a NUL byte, which no command line can pass on".to_string());
    }
    Ok(value)
}

fn unmatched() -> String {
    "its quotes do not match: copy it as cURL (bash)".to_string()
}

fn substitution() -> String {
    "it holds a command for the shell to run ('`…`' or '$(…)'): write what that prints".to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::process::{Command, Stdio};

    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;

    #[track_caller]
    fn read(text: &str) -> Vec<String> {
        let words = words(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn quotes_and_escapes_are_those_of_bash() {
        for (text, expected) in [
            ("", &[][..]),
            ("  a\tb ", &["a", "b"]),
            ("a''b \"\" ''", &["ab", "", ""]),
            ("'a\\nb' \"a\\n\\\"\\$\\`\\\\b\" a\\ b", &["a\\nb", "a\\n\"$`\\b", "a b"]),
            ("a \\\n b \\\r\n c\r\n", &["a", "b", "c"]),
            ("\n a # comment\n# another\r\n\t\n", &["a"]),
            ("a#b c", &["a#b", "c"]),
            ("a\\\nb \"c\\\nd\" 'e\\\nf'", &["ab", "cd", "e\\\nf"]),
            (
                "x=$'a\\'b'c $'\\u00e9\\x41\\101\\e\\q\\\\' $\"d\"",
                &["x=a'bc", "éAA\u{1b}\\q\\", "d"],
            ),
            ("$ \"$\" a$ \"$'x'\" '$x'", &["$", "$", "a$", "$'x'", "$x"]),
            (
                "http://a/?x=[1] A:*/* {x} {a.b} }a,b{ a\r",
                &["http://a/?x=[1]", "A:*/*", "{x}", "{a.b}", "}a,b{", "a"],
            ),
            ("'a\r\nb'", &["a\r\nb"]),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(words("$'\\xe9\\777'").unwrap(), [[0xe9, 0xff]]);
    }

    #[test]
    fn what_the_shell_would_expand_is_refused() {
        for (text, reason) in [
            ("a 'b", "quotes"),
            ("a \"b", "quotes"),
            ("a $'b\\'", "quotes"),
            ("a \"$TOKEN_1 x\"", "variable '$TOKEN_1'"),
            ("a $1", "variable '$1'"),
            ("a ${b}", "expansion"),
            ("a $(b)", "to run"),
            ("a \"`b`\"", "to run"),
            ("a | jq .", "'|' outside of quotes"),
            ("a ?x&y", "'&' outside of quotes"),
            ("a > b", "'>' outside"),
            ("a; b", "';' outside"),
            ("a {b,c}", "expands"),
            ("a x{1..3}", "expands"),
            ("a *", "files"),
            ("a b?c:", "files"),
            ("a ~/b", "folder"),
            ("a\nb", "second command"),
            ("a \\", "next line"),
            ("a ^\r\n b", "cmd"),
            ("a $'\\0'", "NUL"),
            ("a $'\\ud83d\\ude00'", "no character"),
            ("a $'\\x'", "digits"),
        ] {
            let error = words(text).unwrap_err();
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
    }

    /// The words that bash makes of each of `texts`; `None`: there is no bash.
    fn by_bash(texts: &[String]) -> Option<Vec<Vec<Vec<u8>>>> {
        const SCRIPT: &str = "x() { printf '%s\\0' \"$@\"; }
            while IFS= read -r -d '' text; do eval \"x $text\" < /dev/null; printf '=END=\\0'; done";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", SCRIPT]).env("LC_ALL", "C.UTF-8");
        let bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut bash = match bash {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            bash => bash.unwrap(),
        };
        let mut stdin = bash.stdin.take().unwrap();
        let input = texts.join("\0") + "\0";
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let output = bash.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let mut words: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
        assert_eq!(words.pop(), Some(&b""[..]));
        let mut cases: Vec<Vec<Vec<u8>>> = words
            .split(|word| *word == b"=END=")
            .map(|words| words.iter().map(|it| it.to_vec()).collect())
            .collect();
        cases.pop();
        Some(cases)
    }

    #[test]
    fn what_is_accepted_bash_reads_alike() {
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        let text = "([ax01uUe .,?*=!^%@/\\[\\]{}é~-]{0,3}('|\"|\\$'|\\$\"|\\\\|\\$|`|\\\\[uUxce01n'\"\\\\]|\\.\\.| |\n|\r\n|#|[;&|<>()]|)){0,7}";
        let text = proptest::string::string_regex(text).unwrap();
        let texts = (0..5000).map(|_| text.new_tree(&mut runner).unwrap().current());
        let (texts, own): (Vec<String>, Vec<_>) = texts
            .filter_map(|text| Some((text.clone(), words(&format!("x {text}")).ok()?.split_off(1))))
            .unzip();
        assert!(texts.len() > 500, "{}", texts.len());
        // The line ends of Windows are no words of bash.
        let posix: Vec<String> = texts.iter().map(|text| text.replace("\r\n", "\n")).collect();
        let Some(bash) = by_bash(&posix) else {
            drover_testing::skip!("there is no bash");
            return;
        };
        assert_eq!(bash.len(), texts.len());
        for ((text, own), bash) in texts.iter().zip(own).zip(bash) {
            let in_quotes = text.contains("\r\n") && own.iter().any(|word| word.contains(&b'\r'));
            // `x` without a word prints one that is empty.
            let none = own.is_empty() && bash == [b""];
            assert!(none || in_quotes || own == bash, "{text:?}: {own:?}, and bash {bash:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn quoted_text_comes_back(words_in in proptest::collection::vec("\\PC{0,9}[ '\"$`\\\\\n]{0,9}", 1..5)) {
            let quoted: Vec<_> = words_in.iter().map(|it| shlex::try_quote(it).unwrap()).collect();
            proptest::prop_assert_eq!(read(&quoted.join(" ")), &words_in[..]);
            // Browsers' form of the same.
            let ansi = |it: &String| format!("$'{}'", it.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"));
            let quoted: Vec<_> = words_in.iter().map(ansi).collect();
            proptest::prop_assert_eq!(read(&quoted.join(" \\\n  ")), words_in);
        }
    }
}
