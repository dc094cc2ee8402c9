//! What the arguments of a command line say of its request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::input::curl::options::{Argument, CurlOption, OptionMeaning};
use crate::input::curl::parts;
use crate::input::form::{self, Part};
use crate::input::text::ReadFile;
use crate::plan::request::{is_token, name, parse_field};

/// The request, as far as the arguments have been read.
#[derive(Debug, Default)]
pub(super) struct CurlCommand {
    pub(super) url: Option<String>,
    pub(super) method: Option<String>,
    pub(super) head: bool,
    pub(super) get: bool,
    pub(super) globoff: bool,
    pub(super) path_as_is: bool,
    pub(super) compressed: bool,
    /// The fields of `--header`.
    pub(super) fields: Vec<String>,
    /// Names of fields that are not to be sent by themselves.
    pub(super) without: Vec<String>,
    pub(super) user_agent: Option<String>,
    pub(super) referer: Option<String>,
    pub(super) cookies: Vec<String>,
    /// The value of an Authorization field.
    pub(super) authorization: Option<String>,
    pub(super) range: Option<String>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) json: bool,
    pub(super) parts: Vec<Part>,
    pub(super) upload: Option<Vec<u8>>,
}

impl CurlCommand {
    /// # Errors
    /// One line that names the argument that cannot be carried out.
    pub(super) fn new(
        arguments: Vec<Argument>,
        read: &mut ReadFile,
    ) -> Result<CurlCommand, String> {
        let mut command = CurlCommand::default();
        for argument in arguments {
            match argument {
                Argument::Url(url) => command.set_url(&text("the URL", url)?)?,
                Argument::Flag(option, on) => command.flag(option, on)?,
                Argument::Value(option, value) => command.value(option, value, read)?,
            }
        }
        Ok(command)
    }

    fn flag(&mut self, option: CurlOption, on: bool) -> Result<(), String> {
        match option.meaning {
            OptionMeaning::Head => self.head = on,
            OptionMeaning::Get => self.get = on,
            OptionMeaning::Globoff => self.globoff = on,
            OptionMeaning::PathAsIs => self.path_as_is = on,
            OptionMeaning::Compressed => self.compressed = on,
            OptionMeaning::Refused(way_out) => return Err(refused(option, way_out)),
            _ => {}
        }
        Ok(())
    }

    fn value(
        &mut self,
        option: CurlOption,
        value: Vec<u8>,
        read: &mut ReadFile,
    ) -> Result<(), String> {
        let flag = format!("--{}", option.long);
        match option.meaning {
            OptionMeaning::Refused(way_out) => return Err(refused(option, way_out)),
            OptionMeaning::Data => {
                let data = data(&flag, value, read)?;
                // Of a file, curl takes out what ends lines.
                let data = match data {
                    Data::File(bytes) => {
                        bytes.into_iter().filter(|it| !b"\r\n\0".contains(it)).collect()
                    }
                    Data::Text(bytes) => bytes,
                };
                self.add_data(data, true);
            }
            OptionMeaning::DataBinary => self.add_data(data(&flag, value, read)?.bytes(), true),
            OptionMeaning::DataRaw => self.add_data(value, true),
            OptionMeaning::DataUrlencode => self.add_data(url_encoded(&flag, &value, read)?, true),
            OptionMeaning::Json => {
                self.json = true;
                self.add_data(data(&flag, value, read)?.bytes(), false);
            }
            OptionMeaning::User => {
                if !value.contains(&b':') {
                    return Err("--user has no password: write it as -u USER:PASSWORD".to_string());
                }
                self.authorize(format!("Basic {}", STANDARD.encode(value)))?;
            }
            OptionMeaning::Upload => {
                let file = text(&flag, value)?;
                if ["-", "."].contains(&&file[..]) {
                    return Err(format!("{flag} {file}: give a file"));
                }
                if self.upload.replace(read(&file)?).is_some() {
                    return Err(format!("{flag} {file}: it has a second file: leave one out"));
                }
            }
            OptionMeaning::Form => self.parts.push(parts::read(&text(&flag, value)?, read)?),
            OptionMeaning::FormString => self.parts.push(parts::literal(&text(&flag, value)?)?),
            _ => self.text_value(option, &flag, text(&flag, value)?)?,
        }
        Ok(())
    }

    /// Takes a value that has to be text.
    fn text_value(&mut self, option: CurlOption, flag: &str, value: String) -> Result<(), String> {
        match option.meaning {
            OptionMeaning::Url => self.set_url(&value)?,
            OptionMeaning::Method => self.method = Some(value),
            OptionMeaning::Field => self.field(&value)?,
            OptionMeaning::UserAgent => self.user_agent = Some(value),
            // The suffix is about redirects.
            OptionMeaning::Referer => {
                self.referer = Some(value.strip_suffix(";auto").unwrap_or(&value).to_string());
            }
            OptionMeaning::Cookie if value.is_empty() => {}
            OptionMeaning::Cookie if value.starts_with('@') || !value.contains('=') => {
                return Err(format!(
                    "{flag} '{value}': files of cookies are not read: give NAME=VALUE"
                ));
            }
            OptionMeaning::Cookie => self.cookies.push(value),
            OptionMeaning::Bearer => self.authorize(format!("Bearer {value}"))?,
            OptionMeaning::Range => {
                let is_range =
                    value.contains('-') && value.bytes().all(|it| b"0123456789-,".contains(&it));
                if !is_range {
                    return Err(format!(
                        "{flag} '{value}' is no range of bytes: write FROM-TO or FROM-"
                    ));
                }
                self.range = Some(value);
            }
            _ => {}
        }
        Ok(())
    }

    fn set_url(&mut self, url: &str) -> Result<(), String> {
        match self.url.replace(url.to_string()) {
            None => Ok(()),
            Some(first) => {
                Err(format!("it has a second URL, '{url}' after '{first}': leave one out"))
            }
        }
    }

    fn authorize(&mut self, value: String) -> Result<(), String> {
        match self.authorization.replace(value) {
            None => Ok(()),
            Some(_) => {
                Err("it has two users or tokens (--user, --oauth2-bearer): leave one out"
                    .to_string())
            }
        }
    }

    /// Several bodies are joined as the fields of a form are, unless the last one is JSON.
    fn add_data(&mut self, more: Vec<u8>, is_form: bool) {
        match &mut self.data {
            None => self.data = Some(more),
            Some(data) => {
                data.extend(is_form.then_some(b'&'));
                data.extend(more);
            }
        }
    }

    /// A field as curl takes it: `Name: value`, `Name;` for one without a value, and `Name:` for none of that name.
    fn field(&mut self, field: &str) -> Result<(), String> {
        if field.starts_with('@') {
            return Err(format!(
                "--header '{field}': write the fields of the file into the command"
            ));
        }
        let Some((name, value)) = field.split_once(':') else {
            return match field.strip_suffix(';') {
                Some(name) if is_token(name) && !name.eq_ignore_ascii_case("host") => {
                    self.fields.push(parse_field(&format!("{name}:"))?);
                    Ok(())
                }
                _ => parse_field(field).map(drop),
            };
        };
        if is_token(name) && value.trim_ascii().is_empty() {
            if name.eq_ignore_ascii_case("host") && field != "Host:" {
                return Err(
                    "--header 'Host' without a value: write 'Host:' to leave it out".to_string()
                );
            }
            self.without.push(name.to_string());
            return Ok(());
        }
        match name.to_ascii_lowercase().as_str() {
            // Checked against the body when that is complete.
            "content-length" => self.fields.push(field.to_string()),
            "expect" => {
                return Err(
                    "--header 'Expect': responses 100 are not waited for: leave it out".to_string()
                );
            }
            _ => self.fields.push(parse_field(field)?),
        }
        Ok(())
    }

    /// Whether `--header` sets a field, or takes it out.
    pub(super) fn decides(&self, field: &str) -> bool {
        self.fields
            .iter()
            .map(|it| name(it))
            .chain(self.without.iter().map(String::as_str))
            .any(|known| known.eq_ignore_ascii_case(field))
    }

    /// The first field of `--header` with a name.
    pub(super) fn own_field(&self, field: &str) -> Option<&str> {
        self.fields.iter().map(String::as_str).find(|own| name(own).eq_ignore_ascii_case(field))
    }
}

fn refused(option: CurlOption, way_out: &str) -> String {
    format!("--{} is not supported: {way_out}", option.long)
}

/// A value as text. Of bodies alone any bytes can be sent.
fn text(what: &str, value: Vec<u8>) -> Result<String, String> {
    String::from_utf8(value).map_err(|_| format!("{what} is not in UTF-8"))
}

/// A value of a body.
enum Data {
    Text(Vec<u8>),
    File(Vec<u8>),
}

impl Data {
    fn bytes(self) -> Vec<u8> {
        match self {
            Data::Text(bytes) | Data::File(bytes) => bytes,
        }
    }
}

/// A value that is a text, or `@FILE`.
fn data(flag: &str, value: Vec<u8>, read: &mut ReadFile) -> Result<Data, String> {
    match value.strip_prefix(b"@") {
        None => Ok(Data::Text(value)),
        Some(file) => named(flag, file, read).map(Data::File),
    }
}

fn named(flag: &str, file: &[u8], read: &mut ReadFile) -> Result<Vec<u8>, String> {
    match std::str::from_utf8(file) {
        Ok("-") => Err(format!("{flag} @-: stdin is not read: give a file")),
        Ok(file) => read(file),
        Err(_) => Err(format!("{flag}: the name of its file is not in UTF-8")),
    }
}

/// A value of `--data-urlencode`: `content`, `=content`, `name=content`, `@file` or `name@file`.
fn url_encoded(flag: &str, value: &[u8], read: &mut ReadFile) -> Result<Vec<u8>, String> {
    let place =
        value.iter().position(|it| *it == b'=').or_else(|| value.iter().position(|it| *it == b'@'));
    let (name, content) = match place {
        None => (&b""[..], value.to_vec()),
        Some(at) if value[at] == b'=' => (&value[..at], value[at + 1..].to_vec()),
        Some(at) => (&value[..at], named(flag, &value[at + 1..], read)?),
    };
    let mut data = name.to_vec();
    data.extend((!name.is_empty()).then_some(b'='));
    data.extend(form::url_encoded(&content).into_bytes());
    Ok(data)
}
