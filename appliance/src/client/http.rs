//! One request, one answer: over the Unix socket, plain HTTP or TLS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use hyper::Request;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::admin::SOCKET;
use crate::error::StartError;
use crate::serve::state_directory;

/// The way to the program.
#[derive(Debug)]
pub(super) struct Client {
    runtime: Runtime,
    place: Place,
    token: Option<String>,
}

#[derive(Debug)]
enum Place {
    Socket(PathBuf),
    Tcp {
        authority: String,
        host: String,
        tls: Option<Arc<ClientConfig>>,
    },
}

impl Client {
    pub(super) fn new(
        url: Option<&str>,
        state_dir: Option<PathBuf>,
        authorities: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| StartError::System {
                what: "no runtime",
                source,
            })?;
        let place = match url {
            None => Place::Socket(state_directory(state_dir).join(SOCKET)),
            Some(url) => place(url, authorities)?,
        };
        Ok(Self {
            runtime,
            place,
            token: std::env::var("LUNAPORT_TOKEN").ok(),
        })
    }

    /// Asks for a path below `/api/v1`. An error of the API is its own text with its fix.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<String>) -> Result<Value, StartError> {
        let text = self.take(method, path, body)?;
        Ok(serde_json::from_slice(&text).unwrap_or(Value::Null))
    }

    /// The same for an answer that is no JSON.
    pub(super) fn take(&self, method: &str, path: &str, body: Option<String>) -> Result<Vec<u8>, StartError> {
        let asked = async { timeout(PATIENCE, self.send(method, path, body)).await };
        let answered = self
            .runtime
            .block_on(asked)
            .unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let (status, text) =
            answered.map_err(|problem| StartError::Usage(format!("{}: {problem}", self.name())))?;
        if (200..300).contains(&status) {
            return Ok(text);
        }
        let value: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        Err(StartError::Usage(explain(status, &value)))
    }

    async fn send(&self, method: &str, path: &str, body: Option<String>) -> Result<(u16, Vec<u8>), String> {
        let told = |error: std::io::Error| error.to_string();
        match &self.place {
            Place::Socket(path_of_socket) => {
                let stream = UnixStream::connect(path_of_socket).await;
                let stream = stream.map_err(|error| {
                    format!("{error}; start lunaport serve, name its --state-dir, or set LUNAPORT_URL")
                })?;
                self.exchange(stream, "localhost", method, path, body).await
            }
            Place::Tcp { authority, host, tls } => {
                let stream = TcpStream::connect(authority).await.map_err(told)?;
                let Some(tls) = tls else {
                    return self.exchange(stream, authority, method, path, body).await;
                };
                let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
                let stream = TlsConnector::from(Arc::clone(tls))
                    .connect(name, stream)
                    .await
                    .map_err(|error| {
                        format!("{error}; for a certificate that is not the system's, give --ca")
                    })?;
                self.exchange(stream, authority, method, path, body).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        host: &str,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, Vec<u8>), String> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let conversation = async {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("/api/v1{path}"))
                .header("host", host);
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let request = request
                .header("content-type", "application/json")
                .body(Body::from(body.unwrap_or_default()))
                .map_err(|error| error.to_string())?;
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?;
            let status = response.status().as_u16();
            let text = to_bytes(Body::new(response.into_body()), ANSWER_MAX)
                .await
                .map_err(|error| error.to_string())?;
            Ok((status, text.to_vec()))
        };
        tokio::pin!(conversation);
        tokio::select! {
            answer = &mut conversation => answer,
            ended = connection => match ended {
                // The last of an answer may come with the end.
                Ok(()) => conversation.await,
                Err(error) => Err(error.to_string()),
            },
        }
    }

    fn name(&self) -> String {
        match &self.place {
            Place::Socket(path) => path.display().to_string(),
            Place::Tcp { authority, .. } => authority.clone(),
        }
    }
}

fn place(url: &str, authorities: Option<PathBuf>) -> Result<Place, StartError> {
    let refused = |problem: &str| StartError::option("LUNAPORT_URL", url, problem);
    let uri: hyper::Uri = url
        .parse()
        .map_err(|_| refused("no URL; write for example https://san.example.org:8443"))?;
    let host = uri
        .host()
        .ok_or_else(|| refused("names no host"))?
        .trim_matches(['[', ']'])
        .to_owned();
    let (port, tls) = match uri.scheme_str() {
        Some("http") => (80, None),
        Some("https") => (443, Some(trust(authorities)?)),
        _ => return Err(refused("begins with neither http:// nor https://")),
    };
    let port = uri.port_u16().unwrap_or(port);
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    Ok(Place::Tcp { authority, host, tls })
}

fn trust(authorities: Option<PathBuf>) -> Result<Arc<ClientConfig>, StartError> {
    let file = authorities.unwrap_or_else(|| SYSTEM_AUTHORITIES.into());
    let refused = |problem: String| StartError::option("--ca", file.display().to_string(), problem);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&file).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// What the API said, each problem with its place and its fix.
fn explain(status: u16, problem: &Value) -> String {
    let text = |value: &Value, field: &str| {
        value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let problems = problem.get("problems").and_then(Value::as_array);
    let in_use = problem.get("in_use").and_then(Value::as_array);
    let lines: Vec<String> = problems
        .into_iter()
        .chain(in_use)
        .flatten()
        .map(|it| {
            let sessions = it.get("sessions").and_then(Value::as_array).into_iter().flatten();
            let who: Vec<String> = sessions.map(|session| text(session, "initiator")).collect();
            let who = if who.is_empty() {
                String::new()
            } else {
                format!(" ({})", who.join(", "))
            };
            format!(
                "{}: {}{who}; {}",
                text(it, "path"),
                text(it, "problem"),
                text(it, "fix")
            )
        })
        .collect();
    if !lines.is_empty() {
        // The same by its name here.
        return lines.join("\nlunaport: ").replace("force=true", "--force");
    }
    if status == UNAUTHENTICATED {
        return "this needs an API token; set LUNAPORT_TOKEN to one (`lunaport user token` on that host makes it)".to_owned();
    }
    match (text(problem, "detail"), text(problem, "fix")) {
        (detail, _) if detail.is_empty() => format!("the answer was HTTP status {status}"),
        (detail, fix) if fix.is_empty() => detail,
        (detail, fix) => format!("{detail}; {fix}"),
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
/// 401 of HTTP.
const UNAUTHENTICATED: u16 = 401;
const ANSWER_MAX: usize = 256 << 20;
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
