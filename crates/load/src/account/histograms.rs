//! Histograms as text: HdrHistogram V2, compressed, in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::account::counts::{TimeHistogram, times};

/// The distributions of a result beside that of its latencies, so that results can be joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histograms {
    /// From sending to the last byte.
    pub service: Option<String>,
    /// From connect(2) to an open connection.
    pub connect: Option<String>,
    /// From an open connection to the end of its TLS handshake.
    pub handshake: Option<String>,
    /// From sending to the first bytes.
    pub first_byte: Option<String>,
    /// From the first bytes to the last.
    pub transfer: Option<String>,
    /// By how much requests were late by the generator's own fault.
    pub slip: Option<String>,
}

/// Encodes `times` as text; `None`: there are no values.
pub(crate) fn encode(times: &TimeHistogram) -> Option<String> {
    if times.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(times, &mut bytes);
    written.expect("memory takes every histogram");
    Some(STANDARD.encode(bytes))
}

/// Decodes what [`encode`] has written.
///
/// # Errors
/// One line, if `text` is no histogram, or has values that this program never writes (above an hour).
pub(crate) fn decode(text: &str) -> Result<TimeHistogram, String> {
    let bytes = STANDARD.decode(text).map_err(|error| format!("a histogram: {error}"))?;
    let read: TimeHistogram = Deserializer::new()
        .deserialize(&mut &bytes[..])
        .map_err(|error| format!("a histogram: {error}"))?;
    let mut whole = times();
    whole.add(&read).map_err(|_| "a histogram has values above an hour".to_string())?;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::account::counts::record;

    #[test]
    fn a_histogram_survives_as_text() {
        let mut recorded = times();
        record(&mut recorded, Duration::from_micros(1234));
        record(&mut recorded, Duration::from_secs(100));
        assert_eq!(decode(&encode(&recorded).unwrap()).unwrap(), recorded);
        assert_eq!(encode(&times()), None);
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        for text in ["", "=", "AAAA", "HISTFAAA"] {
            assert!(decode(text).unwrap_err().contains("a histogram"), "{text}");
        }
    }
}
