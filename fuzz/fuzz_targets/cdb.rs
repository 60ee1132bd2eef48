//! Commands on a small disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests::entry::cdb(bytes));
