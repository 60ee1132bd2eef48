//! Commands of CD and DVD drives (MMC-6), one file each. What they tell is a finished disc with one session and one data
//! track, which is what an ISO image is.

mod disc;
pub(crate) mod get_configuration;
pub(crate) mod get_event_status;
pub(crate) mod mechanism_status;
pub(crate) mod read_cd;
pub(crate) mod read_disc_information;
pub(crate) mod read_disc_structure;
pub(crate) mod read_sub_channel;
pub(crate) mod read_toc;
pub(crate) mod read_track_information;
pub(crate) mod set_cd_speed;
