//! The body of a recorded request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::input::form::{self, Part};

const URL_ENCODED: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PostData {
    mime_type: Option<String>,
    text: Option<String>,
    /// `base64`, which some programs write for bodies that are not text.
    encoding: Option<String>,
    /// The fields of a form.
    params: Option<Vec<Param>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Param {
    name: String,
    value: Option<String>,
    file_name: Option<String>,
    content_type: Option<String>,
}

/// A body as far as it was recorded.
#[derive(Default)]
pub(super) struct RecordedBody {
    pub(super) bytes: Vec<u8>,
    /// What the Content-Type has to be, unless it was right.
    pub(super) content_type: Option<String>,
    /// Whether it was recorded as a text, and so should have its length.
    pub(super) is_text: bool,
    /// Whether a file of a form was not recorded.
    pub(super) lacks_file: bool,
}

impl PostData {
    /// The body of a request whose Content-Type is `content_type`. A list of fields becomes a form.
    ///
    /// # Errors
    /// One line that says what the body is.
    pub(super) fn body(&self, content_type: Option<&str>) -> Result<RecordedBody, String> {
        let params = self.params.as_deref().unwrap_or_default();
        let text = self.text.as_deref().unwrap_or_default();
        if text.is_empty() && !params.is_empty() {
            return self.form(params, content_type);
        }
        if self.encoding.as_deref() == Some("base64") {
            let bytes =
                STANDARD.decode(text).map_err(|error| format!("its body is no base64: {error}"))?;
            return Ok(RecordedBody { bytes, ..RecordedBody::default() });
        }
        Ok(RecordedBody {
            bytes: text.into(),
            is_text: !text.is_empty(),
            ..RecordedBody::default()
        })
    }

    fn form(&self, params: &[Param], field: Option<&str>) -> Result<RecordedBody, String> {
        let own = self.mime_type.as_deref().filter(|own| !own.is_empty());
        let content_type = field.or(own).unwrap_or(URL_ENCODED);
        match content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
            .as_str()
        {
            URL_ENCODED => {
                let encoded = |text: &str| form::url_encoded(text.as_bytes());
                let value = |param: &Param| encoded(param.value.as_deref().unwrap_or_default());
                let fields: Vec<String> = params
                    .iter()
                    .map(|param| format!("{}={}", encoded(&param.name), value(param)))
                    .collect();
                let content_type = field.is_none().then(|| URL_ENCODED.to_string());
                Ok(RecordedBody {
                    bytes: fields.join("&").into(),
                    content_type,
                    ..RecordedBody::default()
                })
            }
            MULTIPART => Ok(multipart(params, field, own)),
            _ => Err(format!(
                "its body is a list of fields of the type '{content_type}', which is no form"
            )),
        }
    }
}

fn multipart(params: &[Param], field: Option<&str>, own: Option<&str>) -> RecordedBody {
    let lacks_file = params.iter().any(|param| {
        param.file_name.is_some() && param.value.as_deref().unwrap_or_default().is_empty()
    });
    let parts: Vec<Part> = params
        .iter()
        .map(|param| Part {
            name: param.name.clone(),
            file_name: param.file_name.clone(),
            content_type: param.content_type.clone().filter(|it| !it.contains(['\r', '\n'])),
            content: param.value.clone().unwrap_or_default().into(),
        })
        .collect();
    let given = field.and_then(boundary);
    let (bytes, used) = form::multipart(&parts, given.or(own.and_then(boundary)));
    let content_type = given.is_none().then(|| format!("{MULTIPART}; boundary={used}"));
    RecordedBody { bytes, content_type, is_text: false, lacks_file }
}

/// The boundary in a media type (RFC 2046 section 5.1.1).
fn boundary(media_type: &str) -> Option<&str> {
    let parameters = media_type.split(';').skip(1).filter_map(|it| it.trim().split_once('='));
    let mut named = parameters.filter(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    named.next().map(|(_, value)| value.trim_matches('"')).filter(|value| !value.is_empty())
}
