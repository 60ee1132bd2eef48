//! `--address-rule CIDR=ADDR:PORT[,group=N]`: which address discovery tells initiators from one network, for address translation,
//! pods and load balancers.

use target_core::control::Advertised;

use crate::error::StartError;
use crate::portal::{self, DEFAULT_GROUP};

/// One rule.
pub(crate) fn parse(rule: &str) -> Result<Advertised, StartError> {
    let refused = |problem: String| {
        let example = "write for example 10.0.0.0/8=203.0.113.5:3260";
        StartError::option("--address-rule", rule, format!("{problem}; {example}"))
    };
    let (from, rest) = rule
        .split_once('=')
        .ok_or_else(|| refused("there is no =".into()))?;
    let (address, tpgt) = match rest.split_once(",group=") {
        Some((address, number)) => (address, portal::group(number).map_err(refused)?),
        None => (rest, DEFAULT_GROUP),
    };
    Ok(Advertised {
        from: from
            .parse()
            .map_err(|error: target_core::control::MatchError| refused(error.problem))?,
        tpgt,
        address: address.parse().map_err(refused)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_address_are_taken_apart_and_what_is_wrong_is_said() {
        let rule = parse("2001:db8::/32=[2001:db8::5]:3260").unwrap();
        assert_eq!(rule.from.to_string(), "2001:db8::/32");
        assert_eq!(rule.address.to_string(), "[2001:db8::5]:3260");
        assert_eq!(rule.tpgt, DEFAULT_GROUP);
        let grouped = parse("10.0.0.0/8=192.0.2.1:3260,group=7").unwrap();
        assert_eq!(grouped.tpgt, iscsi_proto::Tpgt(7));
        for (rule, part) in [
            ("10.0.0.0/8=192.0.2.1:3260,group=x", "group=x"),
            ("10.0.0.0/8", "no ="),
            ("10.0.0.1/8=192.0.2.1:3260", "10.0.0.0/8"),
            ("10.0.0.0/8=192.0.2.1", "192.0.2.1"),
        ] {
            let message = parse(rule).unwrap_err().to_string();
            assert!(message.contains(part), "{part:?} is missing in: {message}");
        }
    }
}
