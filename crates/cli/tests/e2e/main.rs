//! End-to-end tests: the real binary, real sockets, a real nginx (Debian's) as origin.
//!
//! The module is named `e2e` so that `cargo test -- --skip e2e::` leaves it out; `scripts/test` runs it
//! against the release binary. No test asserts how long something took: it waits for a condition, with a
//! deadline that only a hang reaches.

mod certificates;
mod harness;
mod http;
mod nginx;
mod origin;
mod visitor;

mod acme;
mod admin;
mod analyze;
mod bodies;
mod continues;
mod correlation;
mod crash;
mod ctl;
mod demo;
mod discovery;
mod doctor;
mod experiment;
mod history;
mod hostile;
mod http2;
mod kernel;
mod lab_origin;
mod lifecycle;
mod load;
mod memory;
mod owners;
mod proxy_protocol;
mod replicas;
mod roles;
mod roles_sessions;
mod room;
mod shop;
mod sim;
mod slow_clients;
mod streams;
mod tcp_services;
mod testbed;
mod throttles;
mod tickets;
mod tls;
mod tls_origin;
mod two_hosts;
