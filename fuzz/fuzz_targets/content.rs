#![no_main]
//! Reads chunked content as httparse and hyper do, whole and in pieces. A slice of it runs in every `cargo test`:
//! `crates/http/tests/differential.rs`.

// Each target uses a part of the module.
#[allow(dead_code)]
#[path = "../../crates/http/tests/differential/mod.rs"]
mod differential;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut counts = differential::Counts::default();
    let cuts = differential::cuts(data);
    differential::content::compare(data, &cuts, &mut counts);
    let whole = [differential::hypers::CHUNKED_POST, data].concat();
    differential::hypers::compare_requests(&whole, &mut counts);
});
