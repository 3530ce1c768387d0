//! Which kinds of requests load a bottleneck, found in files that people have: access logs of a web server
//! and figures of a host.
//!
//! The statistics are those of [`tidegate_core::correlate`] (Porter & Katz, "Effective Web Service
//! Loadbalancing through Statistical Monitoring"), which the running gate uses too. This crate reads the
//! files, puts both on one time axis and writes the result. Logs are streamed: the memory depends on the
//! number of intervals and request types, and not on the size of a log.

#![allow(missing_docs, reason = "names say what most items are; docs are for what they cannot say")]

pub mod align;
pub mod analysis;
pub mod choice;
pub mod figures;
pub mod html;
pub mod input;
pub mod lines;
pub mod log;
pub mod report;
mod show;
pub mod suggestion;
pub mod svg;
pub mod types;

#[cfg(test)]
mod tests;

/// A time zone by its offset or by its name in the system's database.
pub fn zone(text: &str) -> Option<jiff::tz::TimeZone> {
    match log::time::offset_seconds(text) {
        Some(seconds) => {
            let offset = jiff::tz::Offset::from_seconds(i32::try_from(seconds).ok()?).ok()?;
            Some(jiff::tz::TimeZone::fixed(offset))
        }
        None => jiff::tz::TimeZone::get(text).ok(),
    }
}
