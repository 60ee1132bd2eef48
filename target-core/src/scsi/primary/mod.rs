//! Commands of all devices (SPC-4), one file each.

pub(crate) mod inquiry;
mod log_pages;
pub(crate) mod log_select;
pub(crate) mod log_sense;
pub(crate) mod mode_pages;
pub(crate) mod mode_select;
pub(crate) mod mode_sense;
pub(crate) mod persistent_reserve_in;
pub(crate) mod persistent_reserve_out;
pub(crate) mod receive_diagnostic;
pub(crate) mod release;
pub(crate) mod report_identifying;
pub(crate) mod report_luns;
pub(crate) mod report_opcodes;
pub(crate) mod report_port_groups;
pub(crate) mod report_timestamp;
pub(crate) mod report_tmfs;
pub(crate) mod request_sense;
pub(crate) mod reserve;
pub(crate) mod send_diagnostic;
pub(crate) mod set_identifying;
pub(crate) mod set_port_groups;
pub(crate) mod set_timestamp;
pub(crate) mod test_unit_ready;
pub(crate) mod vpd;
