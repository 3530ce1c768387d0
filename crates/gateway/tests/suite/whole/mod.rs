//! The whole gate over loopback, where its parts meet: what a unit test of one of them cannot see.

mod admin;
mod asked;
mod changes;
mod classes;
mod figures;
mod harness;
mod limits;
mod matrix;
mod multicast;
mod orders;
mod places;
mod reload;
mod reload_classes;
mod rules;
mod sessions;
mod sharing;
mod shutdown;
mod slow_disk;
mod tiers;
mod tunables;
mod tuners;
