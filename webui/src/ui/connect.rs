//! How an initiator gets to a LUN, and to its new size: portals as hosts reach them, and the commands with the best one.

mod commands;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use management::live::PortStatus;
use management::model::{Credential, LunMap, Method, Target, Transport, Unit};

use crate::Web;
pub(crate) use commands::Commands;
use commands::Way;

/// A portal of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PortalLine {
    /// `address:port` as an initiator needs it.
    pub(crate) address: String,
    /// It listens.
    pub(crate) listening: bool,
    /// Why it does not.
    pub(crate) problem: String,
    /// It is over RDMA.
    pub(crate) is_iser: bool,
    /// Only this machine reaches it.
    pub(crate) is_loopback: bool,
    /// It listens on every address of this machine, of which one is shown.
    pub(crate) is_any: bool,
}

/// How hosts use a LUN.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    /// The portal that the commands name; none when no portal leads to the target.
    pub(crate) portal: Option<PortalLine>,
    /// To log in and find the disk.
    pub(crate) first: Vec<Commands>,
    /// To take up the new size after it has grown.
    pub(crate) grown: Vec<Commands>,
    /// Where Linux has the disk, whatever its letter.
    pub(crate) device: String,
}

/// Whether the portals of a group lead to a target. One that names no group is reached by all.
fn leads(target: &Target, group: u16) -> bool {
    target.portal_groups.is_empty() || target.portal_groups.contains(&group)
}

/// The portals that lead to a target. For an address that stands for all of them stands one by which hosts get here, as
/// `host`, by which the browser came, seems to be.
pub(crate) fn portals(web: &Web, target: &Target, host: &str) -> Vec<PortalLine> {
    let (statuses, own_addresses) = (web.control().port_statuses(), web.control().node().interfaces());
    let leading = statuses
        .iter()
        .filter(|portal| portal.enabled && leads(target, portal.portal_group));
    let line = |portal: &PortStatus| {
        let address: SocketAddr = portal.address.parse().ok()?;
        Some(PortalLine {
            address: reachable(address, host, &own_addresses),
            listening: portal.listening,
            problem: portal.problem.clone().unwrap_or_default(),
            is_iser: portal.transport == Transport::Iser,
            is_loopback: address.ip().is_loopback(),
            is_any: address.ip().is_unspecified(),
        })
    };
    // One of the configuration may be one of the command line too.
    let mut seen = BTreeSet::new();
    leading
        .filter(|portal| seen.insert((&portal.address, portal.transport == Transport::Iser)))
        .filter_map(line)
        .collect()
}

/// The commands for one LUN; none while its target has no portal.
pub(crate) fn ways(web: &Web, target: &Target, map: &LunMap, host: &str) -> Ways {
    let model = web.control().model();
    // One that listens, of those one over TCP, as the commands have it, and of those one that other machines reach as well.
    let rank = |portal: &PortalLine| (!portal.listening, portal.is_iser, portal.is_loopback);
    let Some(portal) = portals(web, target, host).into_iter().min_by_key(rank) else {
        return Ways::default();
    };
    let chap_name = |id: &str| model.get::<Credential>(id).map(|it| it.name.clone());
    let initiator = model
        .access_of(&target.name)
        .find_map(|rule| rule.initiator.clone());
    let individual = initiator.as_ref().and_then(|name| {
        let known = model.get::<management::model::Initiator>(&name.to_string())?;
        chap_name(known.credential.as_ref()?.as_str())
    });
    let authentication = &target.authentication;
    let is_chap = authentication.method == Method::Chap;
    let common = authentication
        .credentials
        .first()
        .and_then(|id| chap_name(id.as_str()));
    let way = Way {
        target: target.name.to_string(),
        portal: portal.address.clone(),
        lun: map.lun,
        naa: model
            .get::<Unit>(map.unit.as_str())
            .and_then(|unit| unit.naa.clone())
            .unwrap_or_default(),
        chap: individual.or(common).filter(|_| is_chap),
        mutual: authentication
            .mutual
            .as_ref()
            .and_then(|id| chap_name(id.as_str()))
            .filter(|_| is_chap),
        initiator: initiator.map(|name| name.to_string()),
        discovery_chap: model.settings().discovery.method == Method::Chap,
        told_otherwise: !web.control().node().directory().advertised.is_empty(),
    };
    Ways {
        first: way.first(),
        grown: way.grown(),
        device: way.device(),
        portal: Some(portal),
    }
}

/// A portal's address for other hosts. `host` is how the browser reached this machine, which says nothing to them when the
/// browser is on it, or comes through a tunnel.
fn reachable(address: SocketAddr, host: &str, own: &[IpAddr]) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    let (is_ipv4, port) = (address.is_ipv4(), address.port());
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let is_elsewhere = match literal {
        Some(ip) => !(ip.is_loopback() || is_ipv4 && ip.is_ipv6()),
        None => !host.is_empty() && host != "localhost",
    };
    if is_elsewhere {
        return format!("{host}:{port}");
    }
    let usable = own.iter().filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !is_ipv4 && !ip.is_loopback() && !ip.is_unicast_link_local(),
    });
    match usable.min_by_key(|ip| ip.is_ipv6()) {
        Some(ip) => SocketAddr::new(*ip, port).to_string(),
        None if host.is_empty() => address.to_string(),
        None => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_for_all_addresses_is_told_as_the_browser_came() {
        let told = |portal: &str, host| reachable(portal.parse().unwrap(), host, &[]);
        assert_eq!(told("0.0.0.0:3260", "san.example.org"), "san.example.org:3260");
        assert_eq!(told("[::]:3261", "[2001:db8::1]"), "[2001:db8::1]:3261");
        assert_eq!(told("192.0.2.1:3260", "x"), "192.0.2.1:3260");
    }

    #[test]
    fn a_browser_on_the_machine_itself_is_told_an_address_that_others_reach() {
        let own = [
            "127.0.0.1",
            "::1",
            "fe80::1",
            "2001:db8::2",
            "169.254.0.1",
            "192.0.2.2",
        ];
        let own = own.map(|ip| ip.parse().unwrap());
        let told = |portal: &str, host| reachable(portal.parse().unwrap(), host, &own);
        assert_eq!(told("0.0.0.0:3260", "127.0.0.1"), "192.0.2.2:3260");
        assert_eq!(told("[::]:3260", "localhost"), "192.0.2.2:3260");
        assert_eq!(told("0.0.0.0:3260", "[2001:db8::9]"), "192.0.2.2:3260");
        assert_eq!(
            reachable("0.0.0.0:1".parse().unwrap(), "localhost", &own[..4]),
            "localhost:1"
        );
        assert_eq!(
            reachable("[::]:1".parse().unwrap(), "[::1]", &own[..4]),
            "[2001:db8::2]:1"
        );
    }
}
