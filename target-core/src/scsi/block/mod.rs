//! Commands of block devices (SBC-4), one file each.
