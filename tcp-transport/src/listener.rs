//! Listening sockets, and the one line that says why there is none.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// A portal that cannot be opened: names the address, the cause and the fix.
#[derive(Debug, thiserror::Error)]
#[error("portal {address}: {}", explain(.source))]
pub struct BindError {
    /// The address asked for.
    pub address: SocketAddr,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

/// Opens a listening socket. An IPv6 address never takes IPv4 connections, so that both can be named side by side.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    listen(address).map_err(|source| BindError { address, source })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there already; stop it (`ss -ltnp` names it) or choose another --portal"
                .into()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this host has no such address; choose one of `ip address`, or 0.0.0.0 for all".into()
        }
        io::ErrorKind::PermissionDenied => {
            "no permission for this port; choose one from 1024 on, or grant CAP_NET_BIND_SERVICE".into()
        }
        _ => error.to_string(),
    }
}

/// Initiators that reconnect all at once after a restart find room.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::bind;

    #[test]
    fn a_port_that_is_taken_is_named_with_the_fix() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let message = bind(address).unwrap_err().to_string();
        assert!(
            message.contains(&address.to_string()) && message.contains("ss -ltnp"),
            "{message}"
        );
    }
}
