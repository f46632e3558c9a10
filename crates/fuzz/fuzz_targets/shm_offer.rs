//! libFuzzer's entry to [`pronto_fuzz::shm_offer`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pronto_fuzz::shm_offer(input));
