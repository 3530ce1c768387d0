//! Connections to the origin: replicas, pool, bodies, tunnels.

pub mod balance;
pub mod body;
pub mod client;
pub mod deadline;
pub mod dispatch;
pub mod gather;
pub(crate) mod http2;
pub mod pool;
pub(crate) mod socket;
pub mod splice;
pub mod stats;
pub mod target;
pub mod tls;
pub mod tunnel;
