//! Conversations over a real socket: a whole target in this process, and an initiator that does what its script says,
//! right or wrong.
//!
//! ```no_run
//! # use tests::script::{Initiator, Target, cdb};
//! # async fn example() {
//! let target = Target::start().await;
//! let mut initiator = Initiator::log_in(&target).await;
//! initiator.write(0, &[0x5a; 512]).await;
//! let end = initiator.command(cdb::read_10(0, 1)).read(512).run().await;
//! assert_eq!(end.good().data, [0x5a; 512]);
//! # }
//! ```
//!
//! Whatever the target sends is held against the rules that hold in every conversation: each StatSN follows the one
//! before, ExpCmdSN and MaxCmdSN never go back, padding is zero, digests match. A panic in the target fails the test.

pub mod cdb;
mod command;
mod cores;
mod initiator;
mod keys;
mod target;
mod wire;

pub use command::{Command, End};
pub use initiator::{FromResponse, INITIATOR, Initiator, PATIENCE};
pub use keys::Keys;
pub use target::{Disk, TARGET, Target, TargetBuilder, unit_config};
pub use wire::{Digests, Pdu};
