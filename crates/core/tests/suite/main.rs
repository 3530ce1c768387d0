//! The core from outside: one binary for all of its integration tests, in the order of the flow.

mod heap;
mod samples;
mod session_keys;

mod classify;

mod address_shares;
mod admission;
mod decide;
mod fall;
mod gate_queue;
mod honest_wait;
mod lost_reports;
mod no_shows;
mod owners;
mod redeem_race;
mod room_model;
mod slots_model;
mod two_halves;

mod ticket;

mod session_table;
mod sessions;
mod sessions_law;
mod sessions_memory;
mod sessions_model;
mod sessions_pace;
mod sessions_room;
mod sessions_under_way;

mod bucket;
mod disciplines;
mod gate;
mod gate_classes;
mod scheduler;

mod measure;

mod correlate;
mod correlate_templates;
mod correlate_window;
mod detect;
mod rules;

mod bottleneck;
mod control;
mod estimators;
mod learned_costs;
mod power_ratio;

mod agent;

mod fuzz;
mod fuzz_slice;
