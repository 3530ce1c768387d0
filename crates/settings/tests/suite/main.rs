//! The settings from outside: one binary for all of their integration tests.

mod mistakes;
mod whole;
