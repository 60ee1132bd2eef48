//! The administration port: `/healthz`, until there is more to administer.

use std::net::{SocketAddr, TcpListener};

use axum::Router;
use axum::routing::get;

use crate::error::StartError;

/// Opens the port, so that a start-up error is told before anything is served.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    tcp_transport::bind(address)
        .map_err(|error| StartError::option("--admin", address.to_string(), error.to_string()))
}

/// Answers until the future is dropped.
pub(crate) async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let router = Router::new().route("/healthz", get(async || "ok\n"));
    axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await
}
