//! Text of keys and values.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests::entry::text(bytes));
