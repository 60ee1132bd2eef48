//! Who logs in to what: the names in the first request of a login (RFC 7143 §6.3, §13.4, §13.5, §13.21).

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi_proto::pdu::LoginStatus;
use iscsi_proto::text::KeyValue;
use iscsi_proto::{IscsiName, Tpgt};

use super::negotiate::find;
use super::refusal::{Refusal, excerpt};
use super::{LinkInfo, SessionType};
use crate::control::{ChapPolicy, Directory, Parameters, Target};

/// Both ends of a login, after access control.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) initiator: IscsiName,
    /// `None` for discovery.
    pub(super) target: Option<Arc<Target>>,
}

impl Identity {
    /// Reads the names and looks the target up.
    pub(super) fn from_first_request(
        directory: &Directory,
        link: &LinkInfo,
        pairs: &[KeyValue],
    ) -> Result<Self, Refusal> {
        let initiator = parse_name("InitiatorName", find(pairs, "InitiatorName"))?;
        let target = match session_type(find(pairs, "SessionType"))? {
            SessionType::Discovery => None,
            SessionType::Normal => {
                let name = parse_name("TargetName", find(pairs, "TargetName"))?;
                Some(find_target(directory, &initiator, link, &name)?)
            }
        };
        Ok(Self { initiator, target })
    }

    pub(super) fn session_type(&self) -> SessionType {
        match self.target {
            Some(_) => SessionType::Normal,
            None => SessionType::Discovery,
        }
    }

    pub(super) fn chap<'a>(&'a self, directory: &'a Directory) -> &'a ChapPolicy {
        let policy = match &self.target {
            Some(target) => &target.chap,
            None => &directory.discovery_chap,
        };
        policy.of(&self.initiator)
    }

    pub(super) fn parameters<'a>(&'a self, directory: &'a Directory) -> &'a Parameters {
        match &self.target {
            Some(target) => &target.parameters,
            None => &directory.discovery_parameters,
        }
    }
}

/// A missing key means a normal session (§13.21).
fn session_type(value: Option<&str>) -> Result<SessionType, Refusal> {
    match value {
        None | Some("Normal") => Ok(SessionType::Normal),
        Some("Discovery") => Ok(SessionType::Discovery),
        Some(other) => Err(Refusal::new(
            LoginStatus::SessionTypeNotSupported,
            format!(
                "the initiator asks for SessionType={:?}, which does not exist",
                excerpt(other)
            ),
            "use an initiator that asks for Normal or Discovery",
        )),
    }
}

fn parse_name(key: &str, value: Option<&str>) -> Result<IscsiName, Refusal> {
    let Some(value) = value else {
        return Err(Refusal::new(
            LoginStatus::MissingParameter,
            format!("the first login request has no {key}"),
            format!("set {key} in the initiator"),
        ));
    };
    let status = match key {
        "TargetName" => LoginStatus::NotFound,
        _ => LoginStatus::InitiatorError,
    };
    value.parse().map_err(|error| {
        Refusal::new(
            status,
            format!("{key} is malformed: {error}"),
            format!("correct {key} in the initiator"),
        )
    })
}

/// The portal group by which a connection to `local` reaches a target. Elsewhere it is as if it was not there.
pub(super) fn reached_by(directory: &Directory, target: &Target, local: SocketAddr) -> Result<Tpgt, Refusal> {
    directory.portal_group(target, local).ok_or_else(|| {
        Refusal::new(
            LoginStatus::NotFound,
            format!("the target {} is not reached by the portal {local}", target.name),
            "use an address that discovery shows for this target, or give the target the portal group of this portal",
        )
    })
}

fn find_target(
    directory: &Directory,
    initiator: &IscsiName,
    link: &LinkInfo,
    name: &IscsiName,
) -> Result<Arc<Target>, Refusal> {
    let Some(target) = directory.targets.get(name) else {
        return Err(Refusal::new(
            LoginStatus::NotFound,
            format!("there is no target {name} here"),
            "compare the target name in the initiator with the targets that are served",
        ));
    };
    reached_by(directory, target, link.local)?;
    if !target.access.admits(initiator, link.peer.ip()) {
        return Err(Refusal::new(
            LoginStatus::AuthorizationFailure,
            format!("the target {name} does not admit the initiator {initiator}"),
            format!("add {initiator} to the initiators that the target admits"),
        ));
    }
    match &target.parameters.redirect {
        Some(redirect) => Err(Refusal::redirect(name, redirect)),
        None => Ok(Arc::clone(target)),
    }
}
