//! `lunaport` without arguments: one target with one sparse disk, made once, and the commands to use it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use management::access::Actor;
use management::control::{Change, Control, Edit};
use management::model::{AnyObject, Kind};
use serde_json::json;

use crate::banner;
use crate::cli::DEFAULT_TARGET;
use crate::error::StartError;
use crate::plan::PlannedUnit;

/// Makes the configuration of the very first start, unless there is one.
pub(crate) async fn configure(control: &Arc<Control>) -> Result<(), StartError> {
    if control.model().generation > 0 {
        return Ok(());
    }
    let objects = [
        (
            Kind::Store,
            json!({"id": "disk0", "place": {"kind": "file", "path": "disk0.img", "size": DISK_SIZE}}),
        ),
        (Kind::Unit, json!({"id": "disk0", "store": "disk0"})),
        (Kind::Target, json!({"name": DEFAULT_TARGET})),
        (
            Kind::Lun,
            json!({"target": DEFAULT_TARGET, "lun": 0, "unit": "disk0"}),
        ),
        (
            Kind::Access,
            json!({"id": "disks-any", "target": DEFAULT_TARGET, "any": true}),
        ),
    ];
    let edits = objects.map(|(kind, value)| {
        Edit::Put(AnyObject::parse(kind, value).expect("the first configuration is well-formed"))
    });
    let made = control.change(&Actor::program(), Change::of(edits.into())).await;
    made.map_err(|error| StartError::state(control.directory(), error, "correct that and start again"))?;
    Ok(())
}

/// Prints what to paste, on standard output.
pub(crate) fn greet(units: &[PlannedUnit], portal: SocketAddr) {
    let Some(unit) = units.first() else { return };
    // Nobody may be listening to standard output, which is no reason not to serve.
    drop(writeln!(
        io::stdout(),
        "{}\n\n{}",
        banner::unit_line(unit),
        banner::commands(unit, portal)
    ));
}

const DISK_SIZE: u64 = 1 << 30;
