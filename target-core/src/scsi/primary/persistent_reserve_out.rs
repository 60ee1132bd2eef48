//! PERSISTENT RESERVE OUT (SPC-4 §6.16): the CDB and the parameter list become one service action, which the unit's
//! reservations do or refuse; then others are told, and for PREEMPT AND ABORT their tasks end.

use std::sync::Arc;

use crate::nexus::{InitiatorPort, NexusId, TargetPort};
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::lu::same;
use crate::scsi::reservations::{
    BasicList, Consequences, MoveList, Moving, PersistentReservations, Registering, ReservationType,
    TransportId,
};
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const REGISTER: CommandSpec = CommandSpec {
    opcode: 0x5f,
    service_action: Some(0x00),
    name: "PERSISTENT RESERVE OUT, REGISTER",
    usage: &[0x5f, 0x00, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        // Which service action conflicts when (table 66) is decided where it is done.
        reservation: ReservationClass::Persistent,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 30,
    operation: Operation::PersistentReserveOut,
};

pub(crate) const RESERVE: CommandSpec = CommandSpec {
    service_action: Some(0x01),
    name: "PERSISTENT RESERVE OUT, RESERVE",
    usage: &[0x5f, 0x01, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const RELEASE: CommandSpec = CommandSpec {
    service_action: Some(0x02),
    name: "PERSISTENT RESERVE OUT, RELEASE",
    usage: &[0x5f, 0x02, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const CLEAR: CommandSpec = CommandSpec {
    service_action: Some(0x03),
    name: "PERSISTENT RESERVE OUT, CLEAR",
    usage: &[0x5f, 0x03, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const PREEMPT: CommandSpec = CommandSpec {
    service_action: Some(0x04),
    name: "PERSISTENT RESERVE OUT, PREEMPT",
    usage: &[0x5f, 0x04, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const PREEMPT_AND_ABORT: CommandSpec = CommandSpec {
    service_action: Some(0x05),
    name: "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
    usage: &[0x5f, 0x05, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    needs: Needs {
        // An ordered task of a nexus to be preempted may hang with its disk.
        overtakes: true,
        ..REGISTER.needs
    },
    ..REGISTER
};

pub(crate) const REGISTER_AND_IGNORE: CommandSpec = CommandSpec {
    service_action: Some(0x06),
    name: "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
    usage: &[0x5f, 0x06, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const REGISTER_AND_MOVE: CommandSpec = CommandSpec {
    service_action: Some(0x07),
    name: "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
    usage: &[0x5f, 0x07, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) const REPLACE_LOST: CommandSpec = CommandSpec {
    service_action: Some(0x08),
    name: "PERSISTENT RESERVE OUT, REPLACE LOST RESERVATION",
    usage: &[0x5f, 0x08, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0],
    ..REGISTER
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let action = ServiceAction::parse(cdb)?;
    let list_len = cdb.u32_at(5) as usize;
    let list = data.get_parameters(list_len).await?;
    if list.len() != list_len {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let request = Request::parse(action, &list)?;
    let (unit, nexus) = (context.unit(), context.nexus());
    let reservations = unit.reservations();
    request.check_aptpl(reservations.can_keep())?;
    let consequences = reservations
        .change(data.abort_signal(), |state| request.apply(context, state))
        .await?;
    tracing::info!(nexus = %nexus.initiator, serial = unit.config().serial, ?action, "persistent reserve out");
    for (told, attention) in &consequences.told {
        unit.raise_for_registrant(told, *attention);
    }
    if matches!(action, ServiceAction::PreemptAndAbort(_)) {
        abort(context, &consequences);
    }
    Ok(())
}

/// The tasks of preempted nexuses end, and nobody waits for that; who prevented the removal of the medium allows it
/// (SPC-4 §5.13.11.2.6). Whoever lost tasks without a status (TAS is 0) is told of it (SAM-5 §5.6).
fn abort(context: &CommandContext<'_>, consequences: &Consequences) {
    let unit = context.unit();
    let is_preempted = |owner: &Arc<NexusId>| consequences.preempted.iter().any(|nexus| same(nexus, owner));
    for loser in context.abort_others(is_preempted) {
        if !same(&loser, context.nexus()) {
            unit.raise_for(&loser, UnitAttention::CommandsCleared);
        }
    }
    for nexus in &consequences.preempted {
        unit.medium().allow(nexus);
    }
}

/// What the CDB says (§6.16.2, table 213), with the type where there is to be one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ServiceAction {
    Register,
    Reserve(ReservationType),
    Release(ReservationType),
    Clear,
    Preempt(ReservationType),
    PreemptAndAbort(ReservationType),
    RegisterAndIgnore,
    RegisterAndMove,
    ReplaceLost,
}

impl ServiceAction {
    fn parse(cdb: Cdb<'_>) -> Result<Self, Failure> {
        Ok(match cdb.service_action() {
            0x00 => Self::Register,
            0x01 => Self::Reserve(scope_and_type(cdb)?),
            0x02 => Self::Release(scope_and_type(cdb)?),
            0x03 => Self::Clear,
            0x04 => Self::Preempt(scope_and_type(cdb)?),
            0x05 => Self::PreemptAndAbort(scope_and_type(cdb)?),
            0x06 => Self::RegisterAndIgnore,
            0x07 => Self::RegisterAndMove,
            0x08 => {
                scope_and_type(cdb)?;
                Self::ReplaceLost
            }
            _ => return Err(Cdb::invalid_bit(1, 4)),
        })
    }
}

fn scope_and_type(cdb: Cdb<'_>) -> Result<ReservationType, Failure> {
    if cdb.bits(2, 7, 4) != LU_SCOPE {
        return Err(Cdb::invalid_bit(2, 7));
    }
    ReservationType::from_code(cdb.bits(2, 3, 0)).ok_or_else(|| Cdb::invalid_bit(2, 3))
}

/// A service action and its parameter list.
#[derive(Debug)]
enum Request {
    Basic(ServiceAction, BasicList),
    Move(MoveList),
}

impl Request {
    fn parse(action: ServiceAction, list: &[u8]) -> Result<Self, Failure> {
        Ok(match action {
            ServiceAction::RegisterAndMove => Self::Move(MoveList::parse(list)?),
            ServiceAction::Register => Self::Basic(action, BasicList::parse(list, true)?),
            ServiceAction::Reserve(_)
            | ServiceAction::Release(_)
            | ServiceAction::Clear
            | ServiceAction::Preempt(_)
            | ServiceAction::PreemptAndAbort(_)
            | ServiceAction::RegisterAndIgnore
            | ServiceAction::ReplaceLost => Self::Basic(action, BasicList::parse(list, false)?),
        })
    }

    /// APTPL is refused where nothing can be kept. Service actions that do not know it ignore it (table 216).
    fn check_aptpl(&self, can_keep: bool) -> Result<(), Failure> {
        let byte = match self {
            Self::Basic(ServiceAction::Register | ServiceAction::RegisterAndIgnore, list) if list.aptpl => 20,
            Self::Move(list) if list.aptpl => 17,
            Self::Basic(..) | Self::Move(_) => return Ok(()),
        };
        if can_keep {
            return Ok(());
        }
        Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(byte, Some(0))
            .into())
    }

    fn apply(
        &self,
        context: &CommandContext<'_>,
        state: &mut PersistentReservations,
    ) -> Result<Consequences, Failure> {
        let nexus = context.nexus();
        let (action, list) = match self {
            Self::Basic(action, list) => (*action, list),
            Self::Move(list) => return register_and_move(context, list, state),
        };
        match action {
            ServiceAction::Register => state.register(&registering(context, list, Some(list.key))?),
            ServiceAction::RegisterAndIgnore => state.register(&registering(context, list, None)?),
            ServiceAction::Reserve(kind) => state.reserve(nexus, list.key, kind),
            ServiceAction::Release(kind) => state.release(nexus, list.key, kind),
            ServiceAction::Clear => state.clear(nexus, list.key),
            ServiceAction::Preempt(kind) | ServiceAction::PreemptAndAbort(kind) => {
                state.preempt(nexus, list.key, list.action_key, kind)
            }
            // Nothing was lost: a state that cannot be read keeps the program from starting (§5.13.11.3).
            ServiceAction::ReplaceLost | ServiceAction::RegisterAndMove => {
                Err(Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION.into())
            }
        }
    }
}

/// Finds the nexuses that a registration is about (§5.13.7, table 69).
fn registering(
    context: &CommandContext<'_>,
    list: &BasicList,
    key: Option<u64>,
) -> Result<Registering, Failure> {
    let (device, nexus) = (context.device(), context.nexus());
    let mut ports = vec![nexus.target.clone()];
    if list.all_target_ports {
        let others = device.target_ports();
        ports.extend(others.into_iter().filter(|port| *port != nexus.target));
    }
    let specified = match &list.specified {
        None => None,
        Some(named) => {
            let mut specified = Vec::new();
            for (id, at) in named {
                for initiator in initiator_ports(context, id, *at)? {
                    specified.extend(nexuses(&initiator, &ports).map(|nexus| (nexus, *at)));
                }
            }
            Some(specified)
        }
    };
    Ok(Registering {
        own: nexuses(&nexus.initiator, &ports).collect(),
        specified,
        key,
        new_key: list.action_key,
        aptpl: list.aptpl,
    })
}

/// The ports that a TransportID names. A device of which we know no port cannot be registered.
fn initiator_ports(
    context: &CommandContext<'_>,
    id: &TransportId,
    at: u16,
) -> Result<Vec<InitiatorPort>, Failure> {
    let ports = match id {
        TransportId::Port(port) => vec![port.clone()],
        TransportId::Device(name) => context.device().initiator_ports(name),
    };
    if ports.is_empty() {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(at, None)
            .into());
    }
    Ok(ports)
}

fn nexuses(initiator: &InitiatorPort, ports: &[TargetPort]) -> impl Iterator<Item = Arc<NexusId>> {
    ports.iter().map(|port| {
        Arc::new(NexusId {
            initiator: initiator.clone(),
            target: port.clone(),
        })
    })
}

/// REGISTER AND MOVE looks at who asks and at what is reserved first, at the destination then (§5.13.8).
fn register_and_move(
    context: &CommandContext<'_>,
    list: &MoveList,
    state: &mut PersistentReservations,
) -> Result<Consequences, Failure> {
    let nexus = context.nexus();
    state.check_move(nexus, list.key, list.action_key)?;
    let invalid = |byte| Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, None);
    let port = context.device().target_port(list.relative_port);
    let target = port.ok_or_else(|| invalid(18))?;
    let TransportId::Port(initiator) = list.destination()? else {
        // A device may have many ports, and a reservation has one holder.
        return Err(invalid(24).into());
    };
    let moving = Moving {
        to: Arc::new(NexusId { initiator, target }),
        key: list.key,
        new_key: list.action_key,
        unregister: list.unregister,
        aptpl: list.aptpl,
    };
    state.register_and_move(nexus, &moving)
}

/// SCOPE: the logical unit.
const LU_SCOPE: u8 = 0x0;
