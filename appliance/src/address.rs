//! Portal addresses as options and environment give them, and as somebody on this host reaches them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::StartError;
use crate::portal::PortalSpec;

/// The port IANA gave to iSCSI targets.
pub(crate) const ISCSI_PORT: u16 = 3260;

/// The items of an environment variable that stands for an option which may be given several times.
pub(crate) fn environment_list(variable: &str) -> Vec<String> {
    let value = std::env::var(variable).unwrap_or_default();
    let items = value.split([';', '\n']).map(str::trim);
    items.filter(|item| !item.is_empty()).map(Into::into).collect()
}

/// The portals that `LUNAPORT_PORTAL` names; none when it is not set.
pub(crate) fn portals_from_environment() -> Result<Vec<PortalSpec>, StartError> {
    let parse = |portal: String| {
        portal
            .parse()
            .map_err(|problem: String| StartError::option(PORTAL_VARIABLE, portal, problem))
    };
    environment_list(PORTAL_VARIABLE).into_iter().map(parse).collect()
}

/// An address that can be connected to: the loopback one for an unspecified portal.
pub(crate) fn reachable(portal: SocketAddr) -> SocketAddr {
    let ip = match portal.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, portal.port())
}

const PORTAL_VARIABLE: &str = "LUNAPORT_PORTAL";
