//! The stages of a request, in their order: session, policies in force, room, gate and origin.

pub mod session;

pub mod coalesce;
pub mod policies;

pub mod enter;
pub mod poll;
pub mod room;

pub mod forward;
