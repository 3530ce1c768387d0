//! The power ratio's discovery: golden trajectories, one test for every rule of the paper and of its reading, what happens to
//! nonsense, and the figures reached in front of a simulated service.

pub mod bench;
pub mod service;

mod degenerate;
mod figures;
mod golden;
mod rules;
