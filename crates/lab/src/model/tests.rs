//! The model's rules, each by itself, together under random histories, and against queueing theory.

mod disturbances;
mod fates;
mod histories;
mod queueing;
mod rules;
mod sharing;
