//! libFuzzer's entry to [`pronto_fuzz::header`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pronto_fuzz::header(input));
