#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lf_fuzz::text_calls(bytes));
