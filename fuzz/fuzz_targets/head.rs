#![no_main]
//! Reads request heads as httparse and hyper do, whole and in pieces. A slice of it runs in every `cargo test`:
//! `crates/http/tests/differential.rs`.

// Each target uses a part of the module.
#[allow(dead_code)]
#[path = "../../crates/http/tests/differential/mod.rs"]
mod differential;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut counts = differential::Counts::default();
    let cuts = differential::cuts(data);
    differential::request::compare(data, &cuts, &mut counts);
    differential::hypers::compare_requests(data, &mut counts);
});
