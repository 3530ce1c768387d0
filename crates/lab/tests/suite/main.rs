//! The lab from outside: one binary for all of its integration tests.

mod bottleneck;
mod classes;
mod closed;
mod demo;
mod experiments;
mod garbage;
mod learned_costs;
mod load;
mod power_ratio;
mod scenarios;
mod sim;
mod sim_admission;
mod sim_sessions;
mod sim_sweep;
mod trajectories;
mod visitors;
