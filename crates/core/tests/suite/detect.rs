//! Detectors in virtual time: every criterion of WAC 3.1, its figure and its levels; what a hostile source can do.

pub mod bench;

mod criteria;
mod properties;
mod sources;
mod thresholds;
