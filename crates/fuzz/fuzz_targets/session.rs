//! libFuzzer's entry to [`pronto_fuzz::session`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pronto_fuzz::session(input));
