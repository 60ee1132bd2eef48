//! The machine's own addresses, which discovery shows in place of an unspecified portal address.

use std::net::IpAddr;

/// All of them, now. Empty when the system does not tell.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = if_addrs::get_if_addrs() else {
        return Vec::new();
    };
    interfaces.into_iter().map(|interface| interface.ip()).collect()
}
