//! Lists of URLs in files: one a line, with a weight behind it or none.

use crate::plan::target::Url;

/// The largest weight: the sum of all is a number then, however many there are.
const WEIGHT_MOST: f64 = 1e15;

/// A list as it was read.
#[derive(Debug, PartialEq)]
pub struct List {
    /// The URLs, in the order of the file.
    pub urls: Vec<Url>,
    /// The weight of each, if any line has one.
    pub weights: Option<Vec<f64>>,
}

/// Reads a list: `URL` or `URL WEIGHT` a line; a line without a weight has the weight 1. Empty lines
/// and lines that begin with `#` are skipped. With a `server`, a line may be a path alone, and `server`
/// replaces the server of each URL.
///
/// # Errors
/// One line that names the faulty line of the list.
pub fn parse(text: &str, server: Option<&Url>) -> Result<List, String> {
    let mut urls = Vec::new();
    let mut weights = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        let Some(url) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let fault = |fault: String| format!("line {number}: {fault}");
        urls.push(at(url, server).map_err(fault)?);
        weights.push(words.next().map(weight).transpose().map_err(fault)?);
        if let Some(more) = words.next() {
            return Err(fault(format!("'{more}' is too much: write URL or URL WEIGHT")));
        }
    }
    if urls.is_empty() {
        return Err("it holds no URL: write one a line".to_string());
    }
    if weights.iter().all(Option::is_none) {
        return Ok(List { urls, weights: None });
    }
    let weights: Vec<f64> = weights.into_iter().map(|weight| weight.unwrap_or(1.0)).collect();
    if weights.iter().sum::<f64>() <= 0.0 {
        return Err("all its weights are 0: one must be above".to_string());
    }
    Ok(List { urls, weights: Some(weights) })
}

/// Reads a URL; with a `server`, the path to request from it.
///
/// # Errors
/// One line, if `text` is not a URL.
pub fn at(text: &str, server: Option<&Url>) -> Result<Url, String> {
    let Some(server) = server else {
        return match text.starts_with('/') {
            true => Err(format!("'{text}' is only a path: name its server with --target")),
            false => text.parse(),
        };
    };
    let url: Url = match text.starts_with('/') {
        true => format!("http://{}{text}", server.authority).parse()?,
        false => text.parse()?,
    };
    Ok(url.at(server))
}

fn weight(word: &str) -> Result<f64, String> {
    match word.parse() {
        Ok(weight) if (0.0..=WEIGHT_MOST).contains(&weight) => Ok(weight),
        _ => Err(format!("'{word}' is no weight: write a number from 0 to {WEIGHT_MOST:e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &List) -> Vec<String> {
        list.urls.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_have_urls_and_weights() {
        let list = parse("# popular\nhttp://a/ 3\n\n http://b:81/c\t0.5\r\n", None).unwrap();
        assert_eq!(texts(&list), ["http://a/", "http://b:81/c"]);
        assert_eq!(list.weights, Some(vec![3.0, 0.5]));
        assert_eq!(parse("http://a/\nhttp://b/", None).unwrap().weights, None);
        let mixed = parse("http://a/\nhttp://b/ 4\nc:81/\n", None).unwrap();
        assert_eq!(mixed.weights, Some(vec![1.0, 4.0, 1.0]));
    }

    #[test]
    fn a_server_takes_the_place_of_any_other() {
        let server: Url = "http://127.0.0.1:8080/not/this".parse().unwrap();
        let text = "/a?b\nHTTP://x/c\nhttpS://x:444/d\nhttps://x";
        let expected = ["/a?b", "/c", "/d", "/"].map(|path| format!("http://127.0.0.1:8080{path}"));
        assert_eq!(texts(&parse(text, Some(&server)).unwrap()), expected);
        let server: Url = "https://a:8443".parse().unwrap();
        let expected = ["/a?b", "/c", "/d", "/"].map(|path| format!("https://a:8443{path}"));
        assert_eq!(texts(&parse(text, Some(&server)).unwrap()), expected);
    }

    #[test]
    fn faults_name_their_line() {
        for (text, fault) in [
            ("", "no URL"),
            ("# nothing", "no URL"),
            ("http://a/\nftp://b/", "line 2: 'ftp://b/' is no http:// or https:// URL"),
            ("/a", "--target"),
            ("https://a:x/", "line 1: 'https://a:x/' has no valid host and port"),
            ("http://a/ -1", "'-1' is no weight"),
            ("http://a/ nan", "'nan' is no weight"),
            ("http://a/ 1e308\nhttp://b/ 1e308", "line 1: '1e308' is no weight"),
            ("http://a/ 0", "all its weights are 0"),
            ("http://a/ 1 2", "'2' is too much"),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(fault) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
