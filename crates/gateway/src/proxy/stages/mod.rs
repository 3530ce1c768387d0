//! The stages of a request, in their order: session, decision, policies in force, room, gate and origin.

pub mod admission;
pub mod claim;
pub mod coalesce;
pub mod forward;
pub mod policies;
pub mod poll;
pub mod room;
pub mod secure;
pub mod session;
pub mod until_answered;
