//! What the first lines say: who may log in, what is served, and the commands to paste.

use std::net::SocketAddr;

use target_core::control::{ChapPolicy, Directory};

use crate::address::reachable;
use crate::plan::PlannedUnit;
use crate::size::format_size;

/// Who may log in, in one line.
pub(crate) fn access_line(directory: &Directory) -> String {
    let portals: Vec<String> = directory
        .portals
        .iter()
        .map(|portal| portal.address.to_string())
        .collect();
    let portals = if portals.is_empty() {
        "no portal".to_owned()
    } else {
        portals.join(" and ")
    };
    let targets = &directory.targets;
    if !targets.values().all(|target| target.access.admits_everyone()) {
        return format!("initiators that the access rules admit may log in at {portals}");
    }
    match targets.values().next().map(|target| &target.chap) {
        Some(ChapPolicy::Required { accepted, own }) => {
            let names: Vec<&str> = accepted
                .iter()
                .map(|credential| credential.name.as_str())
                .collect();
            let mutual = if own.is_some() {
                "; the target proves itself when asked"
            } else {
                ""
            };
            format!(
                "initiators that prove CHAP name {} may log in at {portals}{mutual}",
                names.join(" or ")
            )
        }
        Some(ChapPolicy::Individual { .. }) => {
            format!("initiators that prove their own CHAP name may log in at {portals}")
        }
        Some(ChapPolicy::Open) => {
            format!("every initiator that reaches {portals} may log in, without a password")
        }
        None => format!("no target is configured yet; listening at {portals}"),
    }
}

/// One line per LUN.
pub(crate) fn unit_line(unit: &PlannedUnit) -> String {
    let geometry = unit.store.geometry();
    let cache = if geometry.volatile_cache {
        "write-back cache"
    } else {
        "write-through"
    };
    let access = if geometry.read_only { ", read-only" } else { "" };
    format!(
        "{} LUN {}: {}, {}, {}-byte blocks, {cache}{access}",
        unit.target,
        unit.lun,
        unit.what,
        format_size(geometry.size),
        geometry.block_size,
    )
}

/// Commands to use the first LUN from Linux, QEMU and libiscsi.
pub(crate) fn commands(unit: &PlannedUnit, portal: SocketAddr) -> String {
    let portal = reachable(portal);
    let url = format!("iscsi://{portal}/{}/{}", unit.target, unit.lun);
    let target = &unit.target;
    format!(
        "\
Linux (open-iscsi, as root):
  iscsiadm -m discovery -t sendtargets -p {portal}
  iscsiadm -m node -T {target} -p {portal} --login
  lsblk --scsi
  iscsiadm -m node -T {target} -p {portal} --logout

QEMU:
  qemu-img info {url}
  qemu-io -f raw -c 'write -P 0x5a 0 1M' -c 'read -P 0x5a 0 1M' {url}
  qemu-system-x86_64 -drive file={url},format=raw,if=virtio

libiscsi:
  iscsi-ls -s iscsi://{portal}
  iscsi-inq {url}
  iscsi-readcapacity16 {url}
"
    )
}
