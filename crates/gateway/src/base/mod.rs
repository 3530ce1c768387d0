//! Used by every layer: the clock, the logs, files in the state directory.

pub mod access_log;
pub mod audit;
pub mod clock;
pub mod guard;
pub mod log;
pub mod redeemed_log;
pub mod scratch;
pub mod seldom;
pub mod state_dir;
