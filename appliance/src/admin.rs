//! The administration: the port of `--admin`, and the Unix socket in the state directory.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use management::access::Gate;
use management::control::Control;
use management::exposition::{self, Cores, Exposition};
use target_core::iscsi::Node;
use tokio::net::UnixListener;
use tracing::{info, warn};
use webui::{Peer, Web, router, serve_tcp, serve_unix, server_config};

use crate::cli::ServeArgs;
use crate::error::StartError;
use crate::interfaces;

/// The socket's name in the state directory.
pub(crate) const SOCKET: &str = "lunaport.sock";

/// How the administration is served, checked before anything is.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: Option<TcpListener>,
    tls: Tls,
    set_up_token: Option<String>,
}

#[derive(Debug)]
enum Tls {
    /// Plain HTTP.
    No,
    /// With a certificate of one's own.
    Own(PathBuf, PathBuf),
    /// With one that is made.
    Made,
}

impl Admin {
    /// Opens the port, so that a start-up error is told before anything is served.
    pub(crate) fn prepare(args: &ServeArgs) -> Result<Self, StartError> {
        let bind = |address: SocketAddr| {
            tcp_transport::bind(address)
                .map_err(|error| StartError::option("--admin", address.to_string(), error.to_string()))
        };
        let is_local = args.admin.is_none_or(|address| address.ip().is_loopback());
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(certificate), Some(key)) => Tls::Own(certificate.clone(), key.clone()),
            _ if is_local || args.admin_plain => Tls::No,
            _ => Tls::Made,
        };
        Ok(Self {
            listener: args.admin.map(bind).transpose()?,
            tls,
            set_up_token: set_up_token(args)?,
        })
    }

    /// Whether somebody can configure this process over the network.
    pub(crate) const fn is_there(&self) -> bool {
        self.listener.is_some()
    }

    /// Serves the administration of `control` until it is dropped.
    pub(crate) async fn serve(self, control: &Arc<Control>, cores: Cores) -> Result<(), StartError> {
        let gate = Gate::new(Arc::clone(control));
        let given = self.set_up_token.is_some();
        let token = gate.needs_set_up().then(|| gate.open_set_up(self.set_up_token));
        let web = Web::new(Arc::clone(&gate), env!("CARGO_PKG_VERSION"), cores);
        let router = router(web.clone());
        let socket = open_socket(control.directory());
        let on_socket = async {
            match socket {
                Ok(listener) => serve_unix(listener, router.clone()).await,
                Err(error) => {
                    warn!(%error, "the socket for the command line on this host cannot be opened");
                    std::future::pending::<()>().await;
                }
            }
        };
        let on_port = async {
            let Some(listener) = self.listener else {
                return std::future::pending().await;
            };
            let system = |source| StartError::System {
                what: "--admin cannot be served",
                source,
            };
            let address = listener.local_addr().map_err(system)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(system)?;
            let own = match &self.tls {
                Tls::No | Tls::Made => None,
                Tls::Own(certificate, key) => Some((certificate.as_path(), key.as_path())),
            };
            let tls = match &self.tls {
                Tls::No => None,
                Tls::Made | Tls::Own(..) => {
                    let config = server_config(own, control.directory(), names(address));
                    let refused = |error: webui::TlsError| {
                        StartError::option("--admin", address.to_string(), error.to_string())
                    };
                    let (config, certificate) = config.map_err(refused)?;
                    web.tell_certificate(certificate);
                    Some(config)
                }
            };
            let scheme = if tls.is_some() { "https" } else { "http" };
            info!("management at {scheme}://{address}");
            match token {
                Some(_) if given => {
                    info!("nobody can log in yet: make the first user with the set-up token that was given");
                }
                Some(token) => {
                    info!("nobody can log in yet: make the first user with the set-up token {token}");
                }
                None => {}
            }
            serve_tcp(listener, tls, router.clone()).await;
            Ok(())
        };
        tokio::select! {
            () = on_socket => Ok(()),
            served = on_port => served,
            () = Arc::clone(control).tend() => Ok(()),
        }
    }

    /// Where nothing is saved there is nothing to administer: `/healthz` is answered, and `/metrics` to this host, since
    /// there is nobody who could prove who he is.
    pub(crate) async fn serve_health(self, node: Arc<Node>, cores: Cores) -> Result<(), StartError> {
        let Some(listener) = self.listener else {
            return std::future::pending().await;
        };
        let system = |source| StartError::System {
            what: "--admin cannot be served",
            source,
        };
        let listener = tokio::net::TcpListener::from_std(listener).map_err(system)?;
        serve_tcp(listener, None, of_exports(node, cores)).await;
        Ok(())
    }
}

/// What is answered where nothing is saved.
fn of_exports(node: Arc<Node>, cores: Cores) -> Router {
    let began = Instant::now();
    let metrics = async move |Extension(peer): Extension<Peer>| {
        if !matches!(peer, Peer::Address(address) if address.is_loopback()) {
            let text = "metrics are for this host alone: with --export nobody can log in\n";
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        let mut out = Exposition::default();
        out.program(env!("CARGO_PKG_VERSION"), began.elapsed());
        out.node(&node);
        out.cores(&cores);
        ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], out.into_text()).into_response()
    };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(metrics))
}

/// A socket that nobody but its owner could use at any moment: it is made in a private folder and moved to its place.
fn open_socket(directory: &Path) -> io::Result<UnixListener> {
    let (folder, place) = (directory.join("socket.new"), directory.join(SOCKET));
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::DirBuilder::new().mode(0o700).create(&folder)?,
    }
    let made = folder.join(SOCKET);
    let listener = UnixListener::bind(&made)?;
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600))?;
    // The state directory is ours alone: a socket that is there already is of a process that has ended.
    fs::rename(&made, &place)?;
    fs::remove_dir(&folder)?;
    Ok(listener)
}

fn set_up_token(args: &ServeArgs) -> Result<Option<String>, StartError> {
    let given = match &args.set_up_token_file {
        Some(file) => {
            let refused = |error: io::Error| {
                StartError::option(
                    "--set-up-token-file",
                    file.display().to_string(),
                    error.to_string(),
                )
            };
            Some(fs::read_to_string(file).map_err(refused)?)
        }
        None => std::env::var("LUNAPORT_SET_UP_TOKEN").ok(),
    };
    let Some(token) = given.map(|token| token.trim().to_owned()) else {
        return Ok(None);
    };
    if token.len() < SET_UP_TOKEN_MIN {
        let problem = format!("a set-up token has {SET_UP_TOKEN_MIN} characters at least");
        return Err(StartError::option("set-up token", "…", problem));
    }
    Ok(Some(token))
}

/// What the certificate that is made is for: the names and addresses by which this machine is reached at `address`.
fn names(address: SocketAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    if address.ip().is_unspecified() {
        let own = interfaces::addresses().into_iter();
        names.extend(own.map(|ip| ip.to_string()));
    } else {
        names.push(address.ip().to_string());
    }
    if let Ok(host) = fs::read_to_string("/proc/sys/kernel/hostname") {
        names.push(host.trim().to_owned());
    }
    names.dedup();
    names
}

const SET_UP_TOKEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use target_core::control::Directory;
    use tower::ServiceExt;

    #[tokio::test]
    async fn metrics_of_exports_are_for_this_host_alone() {
        let node = Node::new(Directory::default(), |_| (), Vec::new);
        let router = of_exports(node, Cores::new(Vec::new));
        for (from, status) in [
            ("127.0.0.1", StatusCode::OK),
            ("::1", StatusCode::OK),
            ("192.0.2.1", StatusCode::FORBIDDEN),
            ("2001:db8::1", StatusCode::FORBIDDEN),
        ] {
            let mut request = Request::get("/metrics").body(Body::empty()).unwrap();
            let peer = Peer::Address(from.parse().unwrap());
            request.extensions_mut().insert(peer);
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), status, "{from}");
        }
    }
}
