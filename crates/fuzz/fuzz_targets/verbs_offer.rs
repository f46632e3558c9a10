//! libFuzzer's entry to [`pronto_fuzz::verbs_offer`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pronto_fuzz::verbs_offer(input));
