//! Connections of the management: plain, TLS or Unix, each with the one at its other end known to the handlers. A client
//! that is slow or silent costs a connection for a while and nobody else anything.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::{debug, warn};

use crate::patience::{Hurried, Patient};
use crate::places::{ADDRESS_MAX, Places, TOTAL_MAX};

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Peer {
    /// An address.
    Address(IpAddr),
    /// A user of this host.
    User(u32),
}

/// How the other end came: cookies are for TLS alone where there is TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Plain HTTP, or the Unix socket.
    Http,
    /// TLS.
    Https,
}

/// Serves TCP connections until it is dropped; over TLS when there is a configuration for it.
pub async fn serve_tcp(listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>, router: Router) {
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = Connections::new(router);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.serving.join_next() => continue,
            _ = connections.report.tick() => {
                connections.report();
                continue;
            }
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                out_of_descriptors(&error).await;
                continue;
            }
        };
        let Some(place) = connections.places.take(Some(peer_ip(peer))) else {
            continue;
        };
        let service = connections.router.clone();
        let acceptor = acceptor.clone();
        connections.serving.spawn(async move {
            let _place = place;
            let end = Peer::Address(peer_ip(peer));
            match acceptor {
                None => serve_one(socket, service, end, Scheme::Http).await,
                Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(socket)).await {
                    Ok(Ok(stream)) => serve_one(stream, service, end, Scheme::Https).await,
                    Ok(Err(error)) => debug!(%peer, %error, "no TLS"),
                    Err(_) => debug!(%peer, "no TLS in time"),
                },
            }
        });
    }
}

/// Serves connections of a Unix socket until it is dropped. The kernel says who is at the other end.
pub async fn serve_unix(listener: UnixListener, router: Router) {
    let mut connections = Connections::new(router);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.serving.join_next() => continue,
        };
        let (socket, _) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                out_of_descriptors(&error).await;
                continue;
            }
        };
        let (Some(place), Ok(credentials)) = (connections.places.take(None), socket.peer_cred()) else {
            continue;
        };
        let service = connections.router.clone();
        connections.serving.spawn(async move {
            let _place = place;
            serve_one(socket, service, Peer::User(credentials.uid()), Scheme::Http).await;
        });
    }
}

struct Connections {
    router: Router,
    places: Places,
    serving: JoinSet<()>,
    report: Interval,
}

impl Connections {
    fn new(router: Router) -> Self {
        Self {
            router,
            places: Places::default(),
            serving: JoinSet::new(),
            report: interval(REPORT),
        }
    }

    /// A line a minute, however many there are.
    fn report(&self) {
        let refused = self.places.refused();
        if refused > 0 {
            warn!(
                "{refused} management connections were refused: {TOTAL_MAX} may be open, {ADDRESS_MAX} from one address"
            );
        }
    }
}

async fn serve_one<S>(stream: S, router: Router, peer: Peer, scheme: Scheme)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(|body| Body::new(Hurried::new(body)));
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(scheme);
        router.clone().oneshot(request)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .serve_connection(TokioIo::new(Patient::new(stream)), service)
        .await;
    if let Err(error) = served {
        debug!(?peer, %error, "a management connection broke off");
    }
}

fn peer_ip(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

async fn out_of_descriptors(error: &io::Error) {
    warn!(%error, "a management connection could not be accepted");
    tokio::time::sleep(PAUSE).await;
}

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a request's header may take, and a kept connection may be idle.
const HEADER: Duration = Duration::from_secs(30);
/// How often it is told that connections were refused.
const REPORT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
