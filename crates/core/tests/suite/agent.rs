//! The adaptation agent in a closed loop with a model of clients, policing and a server: golden
//! trajectories, fixed points, and what holds whatever comes.

mod world;

mod agreements;
mod golden;
mod loops;
