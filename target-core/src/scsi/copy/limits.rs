//! The limits of copies, where the commands enforce them and the parameter data tell them.

/// Most CSCD descriptors of one EXTENDED COPY.
pub(crate) const MAXIMUM_CSCD_DESCRIPTORS: u16 = 16;

/// Most segment descriptors of one EXTENDED COPY.
pub(crate) const MAXIMUM_SEGMENTS: u16 = 64;

/// Most bytes of both lists of descriptors together.
pub(crate) const MAXIMUM_DESCRIPTOR_LIST: u32 = 16 * 32 + 64 * 32;

/// Most bytes of one segment. As many blocks as a 02h descriptor can name are always allowed.
pub(crate) const MAXIMUM_SEGMENT_LENGTH: u32 = 256 << 20;

/// Copies of a device that move data at once; more wait in turn. So copies never take more places in the queues of
/// stores than this, and other commands find theirs.
pub(crate) const CONCURRENT_COPIES: u8 = 16;

/// Copies of a device that go on behind their status; one more gets its status when it has ended.
pub(crate) const BACKGROUND_COPIES: u8 = 64;

/// Copies whose progress and end a nexus may ask for on one unit; those that ended first are forgotten first.
pub(crate) const REMEMBERED_COPIES: u8 = 128;

/// Most range descriptors of one token command.
pub(crate) const MAXIMUM_RANGES: u16 = 512;

/// Most seconds without use that an initiator may give a token to live.
pub(crate) const MAXIMUM_INACTIVITY_S: u32 = 3600;

/// Seconds without use that a token lives when the initiator names none.
pub(crate) const DEFAULT_INACTIVITY_S: u32 = 60;

/// Most bytes that one token stands for, or that one WRITE USING TOKEN writes.
pub(crate) const MAXIMUM_TOKEN_BYTES: u64 = 64 << 30;

/// Bytes for one WRITE USING TOKEN that end within the few seconds that Windows gives them, on a slow disk too.
pub(crate) const OPTIMAL_TOKEN_BYTES: u64 = 64 << 20;

/// Tokens of a device, alive and remembered; a new one takes the place of the one that was used least lately.
pub(crate) const MAXIMUM_TOKENS: usize = 1024;

/// OPERATION CODE of commands whose parameter list describes a copy.
pub(crate) const THIRD_PARTY_COPY_OUT: u8 = 0x83;

/// OPERATION CODE of commands that ask about copies.
pub(crate) const THIRD_PARTY_COPY_IN: u8 = 0x84;

/// ROD TYPE: point in time copy, change vulnerable.
pub(crate) const ROD_CHANGE_VULNERABLE: u32 = 0x0080_0001;

/// ROD TYPE: any kind of point in time copy that suits the copy manager.
pub(crate) const ROD_ANY_POINT_IN_TIME: u32 = 0x0080_ffff;

/// ROD TYPE of the well-known token that stands for as many zeroes as are wanted.
pub(crate) const ROD_ZERO: u32 = 0xffff_0001;
