//! Reads any bytes as a configuration.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../config.rs"]
mod config;

fuzz_target!(|data: &[u8]| config::config(data));
