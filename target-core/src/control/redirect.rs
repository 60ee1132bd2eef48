//! Login redirection (RFC 7143 §6.3, §11.13.5): a target that sends its initiators somewhere else.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where initiators are sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// What they are told as TargetAddress.
    pub to: AdvertisedAddress,
    /// For good: initiators may remember it. Otherwise they come back with their next login.
    pub permanent: bool,
}

/// `address:port` or `name:port` as initiators are told it, IPv6 addresses in brackets (§13.8).
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct AdvertisedAddress(String);

impl FromStr for AdvertisedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || {
            format!(
                "{text:?} is no address and port, such as 192.0.2.7:3260, [2001:db8::7]:3260 or san.example.org:3260"
            )
        };
        if text
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.port() != 0)
        {
            return Ok(Self(text.to_owned()));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(problem)?;
        let is_name = |label: &str| {
            !label.is_empty()
                && label.len() <= LABEL_MAX
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        // All digits and dots would be an IPv4 address, which that was not.
        let is_numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if host.len() > HOST_MAX || is_numeric || !host.split('.').all(is_name) || !is_port {
            return Err(problem());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for AdvertisedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Redirect {
    type Err = String;

    /// `ADDR:PORT`, or `ADDR:PORT,permanent`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (to, permanent) = match text.split_once(',') {
            None => (text, false),
            Some((to, "permanent")) => (to, true),
            Some((_, other)) => return Err(format!("{other:?} is not known; there is \",permanent\"")),
        };
        Ok(Self {
            to: to.parse()?,
            permanent,
        })
    }
}

const HOST_MAX: usize = 253;
const LABEL_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_with_a_port_are_taken() {
        for text in [
            "192.0.2.7:3260",
            "[2001:db8::7]:3260",
            "san.example.org:860",
            "san-1:3260",
        ] {
            assert_eq!(text.parse::<AdvertisedAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "192.0.2.7",
            "192.0.2.7:0",
            "192.0.2.300:3260",
            "2001:db8::7:3260x",
            "san..example:1",
            "san:65536",
            "a b:1",
            ":3260",
        ] {
            assert!(text.parse::<AdvertisedAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_is_for_now_unless_it_is_said_to_be_permanent() {
        let redirect: Redirect = "192.0.2.7:3260".parse().unwrap();
        assert!(!redirect.permanent);
        assert!("192.0.2.7:3260,permanent".parse::<Redirect>().unwrap().permanent);
        assert!("192.0.2.7:3260,soon".parse::<Redirect>().is_err());
    }
}
