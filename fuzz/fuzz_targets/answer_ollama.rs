#![no_main]

use lf_dialects::Dialect;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lf_fuzz::answer(Dialect::Ollama, bytes));
