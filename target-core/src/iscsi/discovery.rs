//! The answer to SendTargets (RFC 7143 Appendix C): which targets an initiator is shown, at which addresses.
//!
//! Pure: the machine's own addresses are handed in. A target is shown to exactly those whom a login would admit, if a
//! portal of its groups can be reached, and an address only to those who can reach it from where they ask.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use iscsi_proto::{IscsiName, Tpgt};

use super::negotiate::Answers;
use crate::control::{Directory, Target};

/// Who asks, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its node name, as it logged in.
    pub initiator: &'a IscsiName,
    /// Our end of the connection it asks over.
    pub local: SocketAddr,
    /// What carries that connection.
    pub transport: &'static str,
    /// Where it comes from.
    pub peer: IpAddr,
    /// This machine's addresses, for portals that listen on all of them.
    pub interfaces: &'a [IpAddr],
}

/// Which targets are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    All,
    One(&'a IscsiName),
}

/// TargetName and TargetAddress records. Targets that require CHAP are shown: it is the login that asks for it.
pub(super) fn targets(directory: &Directory, asker: &Asker<'_>, wanted: Wanted<'_>) -> Answers {
    let mut records = Answers::new();
    for target in directory.targets.values() {
        let asked_for = match wanted {
            Wanted::All => true,
            Wanted::One(name) => *name == target.name,
        };
        if !asked_for || !target.access.admits(asker.initiator, asker.peer) {
            continue;
        }
        let addresses = addresses(directory, asker, target);
        // Without an address it would be taken to be at the one that was asked.
        if addresses.is_empty() && directory.portal_group(target, asker.local).is_none() {
            continue;
        }
        records.push(("TargetName".to_owned(), target.name.to_string()));
        let addresses = addresses.into_iter();
        records.extend(addresses.map(|address| ("TargetAddress".to_owned(), address)));
    }
    records
}

/// Where `target` can be reached: the address the asker came in by first, then those of its family.
fn addresses(directory: &Directory, asker: &Asker<'_>, target: &Target) -> Vec<String> {
    let advertised = advertised(directory, asker, target);
    if !advertised.is_empty() {
        return advertised;
    }
    let came_by = plain(asker.local);
    let mut reachable: Vec<SocketAddr> = Vec::new();
    let others = directory.other_portals.get(asker.transport);
    let portals = others
        .unwrap_or(&directory.portals)
        .iter()
        .filter(|portal| target.device.has_port(portal.tpgt));
    for address in portals.flat_map(|portal| expand(portal.address, asker)) {
        if is_reachable(address.ip(), came_by.ip()) && !reachable.contains(&address) {
            reachable.push(address);
        }
    }
    // Stable: portals keep their order within each rank.
    reachable.sort_by_key(|address| match address {
        address if *address == came_by => 0,
        address if address.ip() == came_by.ip() => 1,
        address if address.is_ipv4() == came_by.is_ipv4() => 2,
        _ => 3,
    });
    reachable
        .into_iter()
        .filter_map(|address| Some(format_address(address, directory.portal_group(target, address)?)))
        .collect()
}

/// What is told instead, where a rule says so. The narrowest network that has one decides.
fn advertised(directory: &Directory, asker: &Asker<'_>, target: &Target) -> Vec<String> {
    let rules = directory
        .advertised
        .iter()
        .filter(|rule| target.device.has_port(rule.tpgt) && rule.from.contains(asker.peer));
    let narrowest = rules.clone().map(|rule| rule.from.prefix_len()).max();
    rules
        .filter(|rule| Some(rule.from.prefix_len()) == narrowest)
        .map(|rule| format!("{},{}", rule.address, rule.tpgt.0))
        .collect()
}

/// The addresses that a portal stands for.
fn expand(portal: SocketAddr, asker: &Asker<'_>) -> Vec<SocketAddr> {
    let portal = plain(portal);
    if !portal.ip().is_unspecified() {
        return vec![portal];
    }
    // The address the asker came in by may be missing among the interfaces' (an address that was added just now).
    let local = std::iter::once(asker.local.ip());
    local
        .chain(asker.interfaces.iter().copied())
        .map(|ip| plain(SocketAddr::new(ip, portal.port())))
        // "::" listens to IPv4 too.
        .filter(|address| portal.is_ipv6() || address.is_ipv4())
        .filter(|address| !address.ip().is_unspecified())
        .collect()
}

/// Without a zone, which means nothing on another machine, and with IPv4 written as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, address.port(), 0, 0).into(),
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
    }
}

/// Loopback and link-local addresses are for those who are themselves there.
fn is_reachable(ip: IpAddr, came_by: IpAddr) -> bool {
    if ip.is_loopback() {
        return came_by.is_loopback();
    }
    if is_link_local(ip) {
        return is_link_local(came_by) && ip.is_ipv4() == came_by.is_ipv4();
    }
    !ip.is_multicast()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// `address:port,tpgt`, IPv6 in brackets (§13.8).
fn format_address(address: SocketAddr, tpgt: Tpgt) -> String {
    format!("{address},{}", tpgt.0)
}
