//! The power ratio's discovery: golden trajectories, each rule of the paper and of its reading, degenerate
//! input, and the results in front of a simulated service.

pub mod bench;
pub mod service;

mod degenerate;
mod figures;
mod golden;
mod rules;
