//! The stages of a request, in their order: session, decision, policies in force, room, gate and origin.

pub mod session;

pub mod admission;
pub mod coalesce;
pub mod policies;

pub mod poll;
pub mod room;

pub mod forward;
