//! The whole gate over loopback, where its parts meet: what a unit test of one of them cannot see.

mod admin;
mod classes;
mod figures;
mod harness;
mod limits;
mod places;
mod reload;
mod rules;
mod shutdown;
mod tunables;
mod tuners;
