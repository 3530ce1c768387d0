//! Detectors in virtual time: the figure and the levels of every criterion of WAC 3.1; hostile sources.

pub mod bench;

mod criteria;
mod properties;
mod sources;
mod thresholds;
