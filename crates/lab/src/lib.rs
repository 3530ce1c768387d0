//! Tidegate's test bench: what a service and its visitors do, without a service and without visitors.
//!
//! ```text
//!  crowd ─► visitor ◄─► load ─► client ═══ sockets ═══► (gate) ═══► origin
//!   who      what it     when     how                                what it
//!   comes    does next                                               can take
//!                └────────► tally ─► report ─► demo
//! ```
//!
//! The crowd and the visitors are pure: time and randomness come in as arguments, and one seed gives one
//! crowd. Only `client`, `load` and `origin` touch sockets; nothing here decides who is admitted.

pub mod dist;
pub mod scenario;

pub mod model;
pub mod origin;

pub mod crowd;

pub mod acts;
pub mod answer;
pub mod visitor;

pub mod luggage;

pub mod wheel;

pub mod oracle;
pub mod sim;

pub mod client;
pub mod load;
pub mod tally;

pub mod html;
pub mod outcome;
pub mod plot;

pub mod progress;
pub mod report;

pub mod demo;

pub mod experiment;
