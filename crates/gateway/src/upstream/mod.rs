//! To the origin and back: replicas, connections, bodies, tunnels.

pub mod balance;
pub mod body;
pub mod deadline;
pub mod dispatch;
pub mod pool;
pub mod stats;
pub mod tunnel;
