//! A real browser, headless, through its driver: chromedriver, by the W3C's `WebDriver` protocol and Chromium's
//! own commands.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Programs that are Chromium; the first that is found is taken.
pub const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The program that drives Chromium.
pub const DRIVER: &str = "chromedriver";

/// Chromium, if it is installed.
#[must_use]
pub fn chromium() -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| program(name.as_ref()))
}

/// The program of this name in a folder of `PATH`.
fn program(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.is_file())
}

/// A browser with one page. It ends when it is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Held open: a driver whose output nobody takes may end by it.
    _output: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser; `None` if Chromium or its driver is not installed.
    ///
    /// # Errors
    /// What the driver says, or that it ended.
    pub fn start() -> io::Result<Option<Browser>> {
        let (Some(chromium), Some(driver)) = (chromium(), program(DRIVER.as_ref())) else {
            return Ok(None);
        };
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = driver.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut browser =
            Browser { driver, _output: BufReader::new(output), port: 0, session: String::new() };
        browser.port = port(&mut browser._output)?;
        let flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let asked = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": chromium, "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.ask("POST", "/session", &asked)?;
        session["sessionId"].as_str().unwrap_or_default().clone_into(&mut browser.session);
        Ok(Some(browser))
    }

    /// Shows the page at `url`, and waits until it is loaded.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open(&self, url: &str) -> io::Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Gives the page a size in pixels, no scroll bars, and the light or the dark scheme.
    ///
    /// # Errors
    /// What the driver says.
    pub fn show_as(&self, width: u32, height: u32, is_dark: bool) -> io::Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &size)?;
        self.command("Emulation.setScrollbarsHidden", &json!({ "hidden": true }))?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// The value that a script returns, which is the body of a function with these arguments. A promise is waited
    /// for.
    ///
    /// # Errors
    /// What the script throws, and what the driver says.
    pub fn run(&self, script: &str, arguments: &[Value]) -> io::Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// A command of Chromium's own protocol (CDP).
    ///
    /// # Errors
    /// What the browser says.
    pub fn command(&self, name: &str, parameters: &Value) -> io::Result<Value> {
        self.post("/goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    /// What is in view as WebP: half as large as PNG.
    ///
    /// # Errors
    /// What the driver says.
    pub fn picture(&self) -> io::Result<Vec<u8>> {
        let format = json!({ "format": "webp", "quality": 85 });
        let found = self.command("Page.captureScreenshot", &format)?;
        let text = found["data"].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(text).map_err(io::Error::other)
    }

    /// What the page has written to its console since this was last asked, each with its level in front, as
    /// `SEVERE`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn console(&self) -> io::Result<Vec<String>> {
        let found = self.post("/se/log", &json!({ "type": "browser" }))?;
        let line = |entry: &Value| {
            let words = ["level", "message"].map(|it| entry[it].as_str().unwrap_or_default());
            words.join(" ")
        };
        Ok(found.as_array().into_iter().flatten().map(line).collect())
    }

    fn post(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// The value of the driver's response.
    fn ask(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = body.to_string();
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let (status, body) = response(&mut BufReader::new(connection))?;
        let value: Value = serde_json::from_slice(&body).map_err(io::Error::other)?;
        if status.starts_with("HTTP/1.1 200") {
            return Ok(value["value"].clone());
        }
        Err(io::Error::other(value["value"]["message"].as_str().unwrap_or(&status).to_owned()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends Chromium, which the driver's own end would leave running.
            let _ = self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The status line and the body of a response. The driver keeps its connections open, so that the body ends where
/// its length says.
fn response(connection: &mut impl BufRead) -> io::Result<(String, Vec<u8>)> {
    let mut lines = connection.by_ref().lines();
    let status = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    let mut length = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok((status, body))
}

/// The port that a driver says it listens on.
fn port(output: &mut impl BufRead) -> io::Result<u16> {
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 {
        let number = line.trim_end().trim_end_matches('.').rsplit_once("on port ");
        let port = number.and_then(|(_, number)| number.parse().ok());
        // The driver first repeats what it was asked for: port 0, any.
        if let Some(port) = port.filter(|port| *port != 0) {
            return Ok(port);
        }
        line.clear();
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the driver has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_says_its_port() {
        let said = "Starting ChromeDriver 1 on port 0\nOnly local connections are allowed.\n\
                    ChromeDriver was started successfully on port 34567.\n";
        assert_eq!(port(&mut said.as_bytes()).unwrap(), 34567);
        assert!(port(&mut "nothing\n".as_bytes()).is_err());
    }

    #[test]
    fn a_body_ends_where_its_length_says() {
        let mut sent: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\n{}more";
        let (status, body) = response(&mut sent).unwrap();
        assert_eq!((status.as_str(), body.as_slice()), ("HTTP/1.1 200 OK", b"{}".as_slice()));
        assert!(
            response(&mut b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}".as_slice()).is_err()
        );
    }
}
