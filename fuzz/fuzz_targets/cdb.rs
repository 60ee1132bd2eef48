//! Commands on a small disk, beside which a model knows what they do.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests::entry::cdb(bytes));
