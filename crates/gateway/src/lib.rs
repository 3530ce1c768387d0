//! Tidegate's data plane: carries requests in and performs what the core decides.
//!
//! ```text
//! accept ─► wire ─► serve { hygiene ─► tiers ─► session ─► enforce ─► room ─► gate ─► forward ─► dispatch } ─► origin
//!                     └────────── respond, page ◄──┘
//! driver: tick, admin API, health checks, shutdown
//! ```
//!
//! Modules stand in the order of the flow.

pub mod server;

pub mod accept;
pub mod wire;

mod guard;
pub mod serve;
pub mod shared;

pub mod hygiene;
pub mod navigation;
pub mod target;

pub mod tiers;

pub mod asker;
pub mod enforce;
pub mod multicast;

pub mod cookies;
pub mod room;
pub mod session;

pub mod gate;

pub mod forward;

pub mod dispatch;

pub mod balance;
pub mod body;
pub mod deadline;
pub mod outgoing;
pub mod pool;
pub mod socket;
pub mod tunnel;

pub mod page;
pub mod respond;

pub mod access;
pub mod log;
pub mod logged;

pub mod capacity;
pub mod congestion;
pub mod driver;
pub mod history;

pub mod audit;
pub mod tune;
pub mod tuners;

pub mod admin;
pub mod feedback;
pub mod health;
pub mod metrics;

pub mod live;
pub mod settings;
pub mod state;

pub mod clock;
