//! The request that curl would send.

use std::sync::Arc;

use crate::input::curl::command::CurlCommand;
use crate::input::curl::url::{self, UrlOptions};
use crate::input::form;
use crate::plan::request::{RequestContent, RequestMethod, RequestTemplate, name, parse_field};
use crate::plan::target::Url;

/// What curl says with `--compressed` if it was built with all of its decoders, as distributions have it.
const COMPRESSED: &str = "deflate, gzip, br, zstd";

const FORM: &str = "multipart/form-data";

/// A body, and the Content-Type that curl gives it.
struct Body {
    bytes: Vec<u8>,
    content_type: Option<String>,
}

/// Writes the request of a command.
///
/// # Errors
/// One line that names what contradicts itself.
pub(super) fn build(
    mut command: CurlCommand,
    server: Option<&Url>,
) -> Result<RequestTemplate, String> {
    let written = command.url.take().ok_or("it has no URL")?;
    let query = if command.get { command.data.take().map(String::from_utf8) } else { None };
    let query = query.transpose().map_err(|_| "--get: its data are not in UTF-8")?;
    let body = body(&mut command)?;
    if command.range.is_some() && body.is_some() {
        return Err("--range is for requests without a body: leave one out".to_string());
    }
    let options = UrlOptions {
        globoff: command.globoff,
        path_as_is: command.path_as_is,
        query: query.as_deref(),
        server,
    };
    let url = url::read(&written, &options)?;
    let path = url.path.split('?').next().unwrap_or_default();
    if command.upload.is_some() && path.ends_with('/') {
        return Err("--upload-file: write the name of the file behind the URL's '/'".to_string());
    }
    let method = match &command.method {
        Some(method) => RequestMethod::as_written(method)?,
        None if command.upload.is_some() => RequestMethod::as_written("PUT")?,
        None if command.head => RequestMethod::as_written("HEAD")?,
        None if body.is_some() => RequestMethod::as_written("POST")?,
        None => RequestMethod::default(),
    };
    let fields = fields(&command, &url, body.as_ref())?;
    let body = body.map(|body| body.bytes).unwrap_or_default();
    let content = RequestContent { method, fields, body, is_whole_head: true };
    Ok(RequestTemplate { url, content: Arc::new(content) })
}

fn body(command: &mut CurlCommand) -> Result<Option<Body>, String> {
    let is_form = !command.parts.is_empty();
    let kinds = [command.head, command.data.is_some(), is_form, command.upload.is_some()];
    let conflicts =
        kinds.iter().filter(|it| **it).count() > 1 || (command.get && (is_form || kinds[3]));
    if conflicts {
        return Err("it asks for several methods at once: give one of --head, --data, --form and --upload-file"
            .to_string());
    }
    if command.json {
        for field in ["Content-Type: application/json", "Accept: application/json"] {
            if !command.decides(name(field)) {
                command.fields.push(field.to_string());
            }
        }
    }
    if let Some(bytes) = command.upload.clone() {
        return Ok(Some(Body { bytes, content_type: None }));
    }
    if is_form {
        let own = command.own_field("content-type").map(|field| field[13..].trim().to_string());
        let own = own.unwrap_or_else(|| FORM.to_string());
        let is_removed = command.without.iter().any(|it| it.eq_ignore_ascii_case("content-type"));
        if is_removed || !own.eq_ignore_ascii_case(FORM) {
            return Err(format!(
                "--header 'Content-Type: {own}': --form writes '{FORM}': leave one out"
            ));
        }
        command.fields.retain(|field| !name(field).eq_ignore_ascii_case("content-type"));
        let (bytes, boundary) = form::multipart(&command.parts, None);
        let content_type = Some(format!("{own}; boundary={boundary}"));
        return Ok(Some(Body { bytes, content_type }));
    }
    let form =
        (!command.decides("content-type")).then(|| "application/x-www-form-urlencoded".to_string());
    Ok(command.data.take().map(|bytes| Body { bytes, content_type: form }))
}

/// The fields in curl's order: its own, those of `--header`, those of the body.
fn fields(command: &CurlCommand, url: &Url, body: Option<&Body>) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    match command.own_field("host") {
        Some(own) => fields.push(format!("Host{}", &own[4..])),
        None if command.decides("host") => {}
        None => fields.push(format!("Host: {}", url.authority)),
    }
    let basic = || url.basic().map(|basic| format!("Basic {basic}"));
    let cookies = (!command.cookies.is_empty()).then(|| command.cookies.join(";"));
    let own = [
        ("Authorization", command.authorization.clone().or_else(basic)),
        ("Range", command.range.as_ref().map(|range| format!("bytes={range}"))),
        ("User-Agent", command.user_agent.clone()),
        ("Accept", Some("*/*".to_string())),
        ("Accept-Encoding", command.compressed.then(|| COMPRESSED.to_string())),
        ("Referer", command.referer.clone()),
        ("Cookie", cookies),
    ];
    for (name, value) in own {
        if let Some(value) = value.filter(|value| !value.is_empty() && !command.decides(name)) {
            fields.push(parse_field(&format!("{name}: {value}"))?);
        }
    }
    let length = body.map_or(0, |body| body.bytes.len());
    for field in &command.fields {
        match name(field).to_ascii_lowercase().as_str() {
            "host" => {}
            "content-length" if field[15..].trim() != length.to_string() => {
                return Err(format!(
                    "--header '{field}': the body has {length} bytes: leave it out"
                ));
            }
            _ => fields.push(field.clone()),
        }
    }
    if let Some(body) = body {
        if command.without.iter().any(|it| it.eq_ignore_ascii_case("content-length")) {
            return Err(
                "--header 'Content-Length:': a body is not sent without its length: leave it out"
                    .to_string(),
            );
        }
        if !command.decides("content-length") {
            fields.push(format!("Content-Length: {length}"));
        }
        fields.extend(body.content_type.as_ref().map(|it| format!("Content-Type: {it}")));
    }
    Ok(fields)
}
