//! HTTP as far as the tests need it: one request a connection, over TCP or a Unix socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::PATIENCE;

/// Somebody who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    place: Place,
    headers: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The body as it came.
    pub(crate) bytes: Vec<u8>,
}

impl Client {
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        Self {
            place: Place::Tcp(address),
            headers: Vec::new(),
        }
    }

    pub(crate) fn unix(path: &Path) -> Self {
        Self {
            place: Place::Unix(path.to_owned()),
            headers: Vec::new(),
        }
    }

    /// The same with one more header.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name.to_owned(), value.to_owned()));
        other
    }

    pub(crate) fn bearer(&self, token: &str) -> Self {
        self.with("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None).unwrap()
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, None).unwrap()
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, Some(&body.to_string())).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(&body.to_string())).unwrap()
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, Some(&body.to_string())).unwrap()
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&str>) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        stream.write_all(self.request(method, path, body).as_bytes())?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer"))
    }

    /// Sends a request and gives the stream of what comes.
    pub(crate) fn follow(&self, path: &str) -> Box<dyn ReadWrite> {
        let mut stream = self.connect().unwrap();
        stream
            .write_all(self.request("GET", path, None).as_bytes())
            .unwrap();
        stream
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        } else {
            text.push_str("\r\n");
        }
        text
    }

    fn connect(&self) -> io::Result<Box<dyn ReadWrite>> {
        Ok(match &self.place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }
}

impl Answer {
    /// Its body, when the status is the one that is expected.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// A header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A stream.
pub(crate) trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn parse(text: &[u8]) -> Option<Answer> {
    let end = text.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&text[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut body = text[end + 4..].to_vec();
    if headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked")
    {
        body = unchunked(&body)?;
    } else if let Some((_, len)) = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        && len.parse::<usize>().ok()? != body.len()
    {
        return None;
    }
    Some(Answer {
        status,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
        bytes: body,
    })
}

fn unchunked(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = text.windows(2).position(|two| two == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&text[..end]).ok()?, 16).ok()?;
        text = &text[end + 2..];
        if len == 0 {
            return Some(body);
        }
        body.extend(text.get(..len)?);
        text = text.get(len + 2..)?;
    }
}
