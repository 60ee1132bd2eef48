//! Copies inside the target (SPC-4, third-party copies; SBC-3, ROD tokens): the initiator names places, the
//! data never pass through it.
//!
//! Two families. EXTENDED COPY (LID1) names source and destination in one command, by the identities of their logical
//! units. Token copies are two commands: POPULATE TOKEN gives a name to blocks, WRITE USING TOKEN writes what it stands
//! for, maybe on another unit, maybe by order of another host. Both end up in [`route`], which moves the bytes.
//!
//! **Kind of tokens.** They are point in time copies, change vulnerable (type 0080 0001h): what a token stands for is
//! what the blocks held when it was made, and the first write to one of them revokes it. Nothing is copied to keep it.

pub(crate) mod copy_status;
pub(crate) mod extended_copy;
pub(crate) mod failed_segment;
mod identification;
pub(crate) mod limits;
pub(crate) mod operating_parameters;
mod operation;
pub(crate) mod operation_abort;
mod parameter_list;
pub(crate) mod populate_token;
mod ranges;
mod rod;
pub(crate) mod rod_token_information;
mod route;
mod segment;
#[cfg(test)]
mod tests;
mod token;
mod tokens;
pub(crate) mod write_using_token;

pub(crate) use operation::CopyOperations;
pub(crate) use rod::RodWatch;
pub(crate) use tokens::CopyService;
