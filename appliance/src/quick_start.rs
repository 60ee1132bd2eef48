//! `lunaport` without arguments: one target with one sparse disk, made once, and the commands to use it.

use std::io::{self, Write};
use std::net::SocketAddr;

use backstores::StoreSource;

use crate::banner;
use crate::cli::DEFAULT_TARGET;
use crate::identity::{IdentityMint, InstallationId};
use crate::plan::Plan;
use crate::state::{SavedConfig, SavedStore, SavedTarget, SavedUnit};

/// The configuration of the very first start.
pub(crate) fn first_config(installation: InstallationId) -> SavedConfig {
    let path = "disk0.img";
    let source = StoreSource::File {
        path: path.into(),
        size: Some(DISK_SIZE),
    };
    let identity = IdentityMint::new(installation, DEFAULT_TARGET).next(&source);
    let unit = SavedUnit {
        lun: 0,
        store: SavedStore::File {
            path: path.into(),
            size: DISK_SIZE,
        },
        naa: format!("{:016x}", u64::from_be_bytes(identity.naa)),
        serial: identity.serial,
        read_only: false,
        thin: true,
        removable: false,
        block_size: None,
        physical_block_size: None,
        write_through: false,
        direct: false,
    };
    SavedConfig {
        targets: vec![SavedTarget {
            name: DEFAULT_TARGET.into(),
            units: vec![unit],
        }],
    }
}

/// Prints what to paste, on standard output.
pub(crate) fn greet(plan: &Plan, portal: SocketAddr) {
    let Some(unit) = plan.units.first() else { return };
    // Nobody may be listening to standard output, which is no reason not to serve.
    drop(writeln!(
        io::stdout(),
        "{}\n\n{}",
        banner::unit_line(unit),
        banner::commands(unit, portal)
    ));
}

const DISK_SIZE: u64 = 1 << 30;
