//! What initiators are recognised by besides their exact name: patterns over names, and networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use iscsi_proto::IscsiName;

/// A pattern over whole iSCSI names: `*` is any run of characters, `?` any one. Compared case-folded, as names are.
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
pub struct NamePattern(String);

/// A network in CIDR notation, such as `192.0.2.0/24` or `2001:db8::/32`; a lone address is itself.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct Network {
    /// With all bits behind the prefix zero.
    address: IpAddr,
    prefix_len: u8,
}

/// A pattern or network that is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?}: {problem}")]
pub struct MatchError {
    /// As given, cut to a printable length.
    pub text: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl NamePattern {
    /// Whether the whole name matches.
    #[must_use]
    pub fn matches(&self, name: &IscsiName) -> bool {
        matches(self.0.as_bytes(), name.as_str().as_bytes())
    }
}

impl FromStr for NamePattern {
    type Err = MatchError;

    fn from_str(text: &str) -> Result<Self, MatchError> {
        let allowed = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_' | b'*' | b'?')
        };
        if text.is_empty() || text.len() > PATTERN_MAX || !text.bytes().all(allowed) {
            let problem = "wants 1 to 223 characters of a name, * for any run of them and ? for any one, such as \
                           iqn.2026-11.org.example:*";
            return Err(refused(text, problem));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Network {
    /// Whether it holds the address. An IPv4 address that came in by an IPv6 socket counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.prefix_len) == self.address
    }

    /// Bits that decide.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }
}

impl FromStr for Network {
    type Err = MatchError;

    fn from_str(text: &str) -> Result<Self, MatchError> {
        let problem = "wants a network such as 192.0.2.0/24 or 2001:db8::/32, or one address";
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused(text, problem))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = match len {
            Some(len) => len.parse().map_err(|_| refused(text, problem))?,
            None => longest,
        };
        if prefix_len > longest {
            return Err(refused(
                text,
                &format!("the prefix has at most {longest} bits here"),
            ));
        }
        let network = masked(address, prefix_len);
        if network != address {
            return Err(refused(
                text,
                &format!("has bits behind its prefix; did you mean {network}/{prefix_len}?"),
            ));
        }
        Ok(Self { address, prefix_len })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Linear in time for one star, and never worse than pattern times name: only the last star is ever tried again.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star, from)) = last_star else {
                    return false;
                };
                last_star = Some((star, from + 1));
                (at, read) = (star + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

fn masked(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn refused(text: &str, problem: &str) -> MatchError {
    MatchError {
        text: text.chars().take(64).collect(),
        problem: problem.to_owned(),
    }
}

const PATTERN_MAX: usize = 223;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        let pattern: NamePattern = pattern.parse().unwrap();
        pattern.matches(&name.parse().unwrap())
    }

    #[test]
    fn patterns_cover_the_whole_name_in_any_case() {
        assert!(matches("*", "iqn.2026-11.org.example:a"));
        assert!(matches(
            "IQN.2026-11.org.example:*",
            "iqn.2026-11.org.example:host7"
        ));
        assert!(matches("iqn.*:host?", "iqn.2026-11.org.example:host7"));
        assert!(matches("iqn.*:h*7", "iqn.2026-11.org.example:host-h7"));
        assert!(!matches("iqn.*:host?", "iqn.2026-11.org.example:host77"));
        assert!(!matches("example", "iqn.2026-11.org.example:host7"));
        assert!("iqn.2026-11.org.example:a b".parse::<NamePattern>().is_err());
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let network: Network = "192.0.2.0/24".parse().unwrap();
        assert!(network.contains("192.0.2.255".parse().unwrap()));
        assert!(network.contains("::ffff:192.0.2.1".parse().unwrap()));
        assert!(!network.contains("192.0.3.0".parse().unwrap()));
        assert!(!network.contains("2001:db8::1".parse().unwrap()));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        let one: Network = "2001:db8::1".parse().unwrap();
        assert_eq!(one.to_string(), "2001:db8::1/128");
    }

    #[test]
    fn a_network_with_stray_bits_is_told_what_it_should_be() {
        let message = "192.0.2.7/24".parse::<Network>().unwrap_err().to_string();
        assert!(message.contains("192.0.2.0/24"), "{message}");
        assert!("192.0.2.0/33".parse::<Network>().is_err());
    }
}
