//! The gateway from outside, over real sockets: one binary for all of its integration tests.

mod heap;
mod http1;
mod http2;
mod log;
mod upstream_allocations;
mod upstream_connection;
mod upstream_expect;
mod upstream_failures;
mod upstream_messages;
mod upstream_replicas;
mod upstream_support;
mod upstream_upgrade;
mod whole;
