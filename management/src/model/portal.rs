//! Where initiators come in, and what discovery tells them of it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::target::yes;
use super::{Cidr, Id};

/// A listening address.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Portal {
    /// What it is called here.
    pub id: Id,
    /// Address and port; `0.0.0.0` or `[::]` is every address of the family.
    #[schema(value_type = String, example = "192.0.2.1:3260")]
    pub address: SocketAddr,
    /// Tag of the portal group it belongs to.
    #[serde(default = "first_group")]
    #[schema(minimum = 1)]
    pub portal_group: u16,
    /// How data are moved.
    #[serde(default)]
    pub transport: Transport,
    /// Switched off it accepts nobody; sessions that are there go on.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// How data are moved.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// iSCSI over RDMA.
    Iser,
    /// TCP.
    #[default]
    Tcp,
}

/// What discovery tells initiators from one network in place of the portals' own addresses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedAddress {
    /// What it is called here.
    pub id: Id,
    /// Where the initiators come from; of several rules the narrowest network decides.
    pub from: Cidr,
    /// Portal group that is reached this way.
    #[serde(default = "first_group")]
    #[schema(minimum = 1)]
    pub portal_group: u16,
    /// `address:port` or `name:port`; IPv6 addresses in brackets.
    #[schema(example = "storage.example.org:3260")]
    pub address: String,
}

object!(Portal, Portal, portals, |portal| portal.id.to_string());
object!(AdvertisedAddress, Advertised, advertised, |rule| rule
    .id
    .to_string());

const fn first_group() -> u16 {
    1
}
