#![no_main]
//! `cargo +nightly fuzz run ticket`. A slice of it runs in every `cargo test`:
//! `crates/core/tests/suite/fuzz_slice.rs`.

// Each target uses a part of the module.
#[allow(dead_code)]
#[path = "../../crates/core/tests/suite/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::ticket::run(data);
});
