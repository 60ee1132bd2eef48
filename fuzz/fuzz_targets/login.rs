//! Whole logins at a target that requires CHAP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests::entry::login(bytes));
