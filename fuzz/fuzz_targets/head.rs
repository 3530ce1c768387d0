//! Request heads: the verdict does not depend on segmentation, and what is accepted the parsers behind accept too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_gateway::http::wire::fuzz_head(data));
