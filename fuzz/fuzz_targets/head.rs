//! Parses request heads. The result must not depend on segmentation, and the parsers behind must accept what
//! is accepted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_gateway::http::wire::fuzz_head(data));
