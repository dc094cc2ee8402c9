//! The form of a file that a client gets is the one of the highest weight, then the shortest, then the file as it is: as a reader
//! says that knows numbers with a point and no limits.
#![no_main]

use drover_http1::coding::{self, ContentCoding};
use drover_http1::{HeadLimits, request};
use libfuzzer_sys::fuzz_target;

/// The weight of the first element with one of these names, in thousandths.
fn weight(elements: &[(String, f64)], names: &[&str]) -> Option<f64> {
    elements.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, weight)| *weight)
}

/// An element of the list, if it is valid.
fn element(text: &str) -> Option<(String, f64)> {
    let Some((name, parameter)) = text.split_once(';') else {
        return Some((text.trim().to_ascii_lowercase(), 1000.0));
    };
    let value = parameter.trim().to_ascii_lowercase().strip_prefix("q=")?.to_owned();
    let has_form = value.len() <= 5
        && value.starts_with(['0', '1'])
        && value.bytes().enumerate().all(|(at, byte)| match at {
            1 => byte == b'.',
            _ => byte.is_ascii_digit(),
        });
    let weight = value.parse::<f64>().ok().filter(|it| has_form && *it <= 1.0)?;
    Some((name.trim().to_ascii_lowercase(), (weight * 1000.0).round()))
}

fuzz_target!(|input: ([u8; 4], &[u8])| {
    let ([len, br, zstd, gzip], lines) = input;
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for line in lines.split(|byte| *byte == b'\n') {
        head.extend_from_slice(&[b"Accept-Encoding:", line, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let Ok(Some(request)) = request::parse(&head, &HeadLimits::default()) else { return };
    // Every other length stands for a form that is not there.
    let stored: Vec<_> = ContentCoding::ALL.into_iter().zip([br, zstd, gzip]).collect();
    let stored: Vec<_> = stored.into_iter().filter(|(_, len)| len % 2 == 0).collect();
    let forms = stored.iter().map(|(coding, len)| (*coding, u64::from(*len)));
    let chosen = coding::choose(request.accept_encoding, len.into(), forms);

    let text = String::from_utf8_lossy(lines).replace('\n', ",");
    let elements: Vec<_> = text.split(',').filter(|it| !it.trim().is_empty()).collect();
    let elements: Vec<_> = elements.into_iter().filter_map(element).collect();
    let any = weight(&elements, &["*"]);
    let as_it_is = weight(&elements, &["identity"]).unwrap_or(0.0);
    let mut forms = vec![(None, as_it_is, len)];
    for (coding, len) in stored {
        let names: &[&str] = match coding {
            ContentCoding::Brotli => &["br"],
            ContentCoding::Zstd => &["zstd"],
            ContentCoding::Gzip => &["gzip", "x-gzip"],
        };
        let weight = weight(&elements, names).or(any).unwrap_or(0.0);
        forms.extend((weight > 0.0).then_some((Some(coding), weight, len)));
    }
    forms.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.2.cmp(&other.2)));
    assert_eq!(chosen, forms[0].0, "{text:?}");
});
