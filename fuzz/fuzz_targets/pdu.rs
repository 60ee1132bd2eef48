//! Headers of PDUs, and additional header segments.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests::entry::pdu(bytes));
