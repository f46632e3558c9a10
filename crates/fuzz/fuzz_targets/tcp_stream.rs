//! libFuzzer's entry to [`pronto_fuzz::tcp_stream`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pronto_fuzz::tcp_stream(input));
