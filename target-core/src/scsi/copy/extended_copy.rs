//! EXTENDED COPY (LID1) (SPC-4): copies segments between units that it names, one after the other.

use std::sync::atomic::Ordering;

use super::limits::{MAXIMUM_SEGMENT_LENGTH, THIRD_PARTY_COPY_OUT};
use super::operation::{Conclusion, ListId, Operation};
use super::parameter_list::{self, ParameterList};
use super::route::{Agent, Route, Trouble};
use super::segment::Segment;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer, ReservationClass};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_OUT,
    service_action: Some(0x00),
    name: "EXTENDED COPY (LID1)",
    usage: &[
        THIRD_PARTY_COPY_OUT,
        0x00,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Disk,
        reservation: ReservationClass::Writes,
        ..Needs::UNIT
    },
    timeout_s: 120,
    operation: table::Operation::ExtendedCopy,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let len = usize::try_from(cdb.u32_at(10)).unwrap_or(usize::MAX);
    let list = data.get_parameters(len).await?;
    if len == 0 {
        return Ok(());
    }
    let list = parameter_list::parse(&list)?;
    let cancel = data.abort_signal().part();
    let doing = match list.list {
        Some(id) => Some(context.unit().copies().begin(
            context.nexus(),
            ListId::Short(id),
            0x00,
            cancel.clone(),
        )?),
        None => None,
    };
    let agent = Agent {
        nexus: std::sync::Arc::clone(context.nexus()),
        tag: context.tag(),
        abort: cancel,
        pool: std::sync::Arc::clone(data.pool()),
        places: std::sync::Arc::clone(context.device().copies().places()),
    };
    let operation = doing.as_ref().map(|doing| doing.operation());
    let copied = copy_all(context, &list, &agent, operation).await;
    // Without the command's own abort it ends with a status, whatever stopped it.
    let result = match copied {
        Err(Failure::Aborted) if !data.abort_signal().is_fired() => Err(Sense::COPY_ABORTED.into()),
        other => other,
    };
    match (doing, result) {
        (Some(doing), result) => {
            let result = result.map(|()| Conclusion::Complete);
            doing.conclude(&result);
            result.map(drop)
        }
        (None, result) => result,
    }
}

async fn copy_all(
    context: &CommandContext<'_>,
    list: &ParameterList,
    agent: &Agent,
    operation: Option<&Operation>,
) -> Result<(), Failure> {
    let _place = agent.place().await.map_err(|_| Failure::Aborted)?;
    for (segment, number) in list.segments.iter().zip(0..) {
        copy_one(context, list, *segment, agent, operation)
            .await
            .map_err(|stop| match stop {
                Stop::Aborted => Failure::Aborted,
                Stop::At(sense, byte) if sense.field.is_none() => sense.in_segment(number, byte).into(),
                Stop::At(sense, _) => sense.into(),
            })?;
        if let Some(operation) = operation {
            operation.segments.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Why a segment was not done.
enum Stop {
    Aborted,
    /// The sense, and the field of the segment's descriptor that it is about.
    At(Sense, Option<u16>),
}

async fn copy_one(
    context: &CommandContext<'_>,
    list: &ParameterList,
    segment: Segment,
    agent: &Agent,
    operation: Option<&Operation>,
) -> Result<(), Stop> {
    let unit = |index: u16, byte: u16| {
        let cscd = list
            .cscds
            .get(usize::from(index))
            .ok_or(Stop::At(Sense::UNREACHABLE_COPY_TARGET, Some(byte)))?;
        cscd.resolve(context).map_err(|sense| Stop::At(sense, Some(byte)))
    };
    let source = unit(segment.source, 4)?;
    let destination = unit(segment.destination, 6)?;
    let (from, to) = (source.store().geometry(), destination.store().geometry());
    let span = segment
        .span((from.block_size, to.block_size), (from.size, to.size))
        .map_err(|(sense, byte)| Stop::At(sense, byte))?;
    if span.len > u64::from(MAXIMUM_SEGMENT_LENGTH) {
        return Err(Stop::At(Sense::COPY_ABORTED, Some(8)));
    }
    let stop = |trouble: Trouble| match trouble {
        Trouble::Aborted => Stop::Aborted,
        trouble @ (Trouble::Changed | Trouble::Source(_) | Trouble::Destination(_)) => {
            tracing::debug!(?trouble, "a segment failed");
            Stop::At(trouble.of_segment(), None)
        }
    };
    let mut route = Route::open(agent, &source, &destination, None).map_err(stop)?;
    let progress = |bytes| {
        if let Some(operation) = operation {
            operation.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    route.copy(span, progress).await.map_err(stop)?;
    route.finish().await.map_err(stop)
}
