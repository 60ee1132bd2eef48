//! iSCSI names: iqn., eui. and naa. forms (RFC 7143 §4.2.7), compared case-folded.
//!
//! Letters are folded to lower case, as the string preparation of RFC 3722 does for ASCII. Names outside ASCII are
//! refused: to compare them safely takes Unicode normalisation, and access control must not depend on half of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A well-formed iSCSI name in lower case, at most 223 bytes. Cheap to clone.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IscsiName(Arc<str>);

/// What is wrong with a name, for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("iSCSI name {name:?}: {problem}")]
pub struct NameError {
    /// The name as given, cut to a printable length.
    pub name: String,
    /// What is wrong.
    pub problem: &'static str,
}

impl IscsiName {
    /// The name as it is written and compared.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let refused = |problem| NameError {
            name: excerpt(name),
            problem,
        };
        if name.len() > MAX_LEN {
            return Err(refused("longer than 223 bytes"));
        }
        if !name.is_ascii() {
            return Err(refused(
                "has a character outside ASCII; give the host a name of a-z, 0-9, '-', '.', ':'",
            ));
        }
        let folded = name.to_ascii_lowercase();
        let Some((kind, rest)) = folded.split_once('.') else {
            return Err(refused(UNKNOWN_FORM));
        };
        match kind {
            "iqn" => check_iqn(rest),
            "eui" => check_hex(rest, &[16], "wants 16 hexadecimal digits after \"eui.\""),
            "naa" => check_hex(
                rest,
                &[16, 32],
                "wants 16 or 32 hexadecimal digits after \"naa.\"",
            ),
            _ => Err(UNKNOWN_FORM),
        }
        .map_err(refused)?;
        Ok(Self(folded.into()))
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What follows `iqn.`: `yyyy-mm.reversed.domain[:string]`.
fn check_iqn(rest: &str) -> Result<(), &'static str> {
    let Some((date, owner_and_string)) = rest.split_once('.') else {
        return Err("has no domain name after the date");
    };
    check_date(date)?;
    let (domain, string) = owner_and_string.split_once(':').unwrap_or((owner_and_string, ""));
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_label_byte);
    if !domain.split('.').all(is_label) {
        return Err("wants a reversed domain name after the date, such as \"com.example\"");
    }
    // '_' is not a character of names (§4.2.7.1), but virtual machines hand their own name over in this part.
    if !string
        .bytes()
        .all(|byte| is_label_byte(byte) || matches!(byte, b'.' | b':' | b'_'))
    {
        return Err("has a character other than a-z, 0-9, '-', '.', ':' after the domain name");
    }
    Ok(())
}

fn check_date(date: &str) -> Result<(), &'static str> {
    let well_formed = match date.as_bytes() {
        [year @ .., b'-', tens, ones] if year.len() == 4 && year.iter().all(u8::is_ascii_digit) => {
            matches!((tens, ones), (b'0', b'1'..=b'9') | (b'1', b'0'..=b'2'))
        }
        _ => false,
    };
    match well_formed {
        true => Ok(()),
        false => Err("wants a date yyyy-mm after \"iqn.\""),
    }
}

fn check_hex(digits: &str, lengths: &[usize], problem: &'static str) -> Result<(), &'static str> {
    let well_formed = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if well_formed { Ok(()) } else { Err(problem) }
}

const fn is_label_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

/// Enough of a name to recognise it in a log.
fn excerpt(name: &str) -> String {
    name.chars().take(EXCERPT_CHARS).collect()
}

const MAX_LEN: usize = 223;
const EXCERPT_CHARS: usize = 64;
const UNKNOWN_FORM: &str = "does not begin with \"iqn.\", \"eui.\" or \"naa.\"";

#[cfg(test)]
mod tests {
    use super::{IscsiName, NameError};

    fn problem(name: &str) -> &'static str {
        name.parse::<IscsiName>().expect_err(name).problem
    }

    #[test]
    fn names_of_real_initiators_are_taken() {
        for name in [
            "iqn.1991-05.com.microsoft:host.example.org",
            "iqn.1998-01.com.vmware:esx-1-4f2a",
            "iqn.1993-08.org.debian:01:ab12cd34ef",
            "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test",
            "iqn.2008-11.org.linux-kvm",
            "iqn.2008-11.org.linux-kvm:build_host",
            "iqn.2010-04.org.ipxe:c0ffee00-0000-4000-8000-000000000001",
            "iqn.1988-12.com.oracle:5f3c",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(
                name.parse::<IscsiName>().map(|name| name.to_string()),
                Ok(name.to_owned())
            );
        }
    }

    #[test]
    fn case_makes_no_difference() {
        let upper: IscsiName = "IQN.1991-05.COM.Microsoft:HOST".parse().unwrap();
        let lower: IscsiName = "iqn.1991-05.com.microsoft:host".parse().unwrap();
        assert_eq!(upper, lower);
        assert_eq!(upper.as_str(), "iqn.1991-05.com.microsoft:host");
    }

    #[test]
    fn each_part_that_is_wrong_is_named() {
        let no_date = "wants a date yyyy-mm after \"iqn.\"";
        assert_eq!(problem("iqn.2024-13.org.example"), no_date);
        assert_eq!(problem("iqn.2024-00.org.example"), no_date);
        assert_eq!(problem("iqn.24-01.org.example"), no_date);
        assert_eq!(problem("iqn.2024-1.org.example"), no_date);
        assert_eq!(problem("iqn.2024-01"), "has no domain name after the date");
        let no_domain = "wants a reversed domain name after the date, such as \"com.example\"";
        assert_eq!(problem("iqn.2024-01."), no_domain);
        assert_eq!(problem("iqn.2024-01.org..example"), no_domain);
        assert_eq!(problem("iqn.2024-01.:disk"), no_domain);
        let no_string = "has a character other than a-z, 0-9, '-', '.', ':' after the domain name";
        assert_eq!(problem("iqn.2024-01.org.example:a b"), no_string);
        assert_eq!(problem("iqn.2024-01.org.example:a,i,0x00"), no_string);
        assert_eq!(
            problem("eui.02004567a425678"),
            "wants 16 hexadecimal digits after \"eui.\""
        );
        assert_eq!(
            problem("naa.52004567ba64678g"),
            "wants 16 or 32 hexadecimal digits after \"naa.\""
        );
        for name in ["", "disk", "iqn", "nqn.2014-08.org.nvmexpress"] {
            assert_eq!(
                problem(name),
                "does not begin with \"iqn.\", \"eui.\" or \"naa.\""
            );
        }
    }

    #[test]
    fn the_limit_is_223_bytes() {
        let longest = format!("iqn.2024-01.org.example:{}", "x".repeat(199));
        assert_eq!(longest.len(), 223);
        assert!(longest.parse::<IscsiName>().is_ok());
        assert_eq!(problem(&format!("{longest}x")), "longer than 223 bytes");
    }

    #[test]
    fn letters_outside_ascii_are_refused_and_the_error_stays_short() {
        let NameError { name, problem } = format!("iqn.2024-01.org.example:{}", "ö".repeat(90))
            .parse::<IscsiName>()
            .unwrap_err();
        assert!(problem.starts_with("has a character outside ASCII"));
        assert_eq!(name.chars().count(), 64);
    }
}
