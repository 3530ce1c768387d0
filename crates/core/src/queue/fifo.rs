//! First come, first served: the order that people in a queue think fair, and the one in which the longest wait is shortest.
//! It is a bad one when everybody has waited for longer than anybody has patience: see [`AdaptiveLifo`](super::AdaptiveLifo).

use super::{Discipline, End, List};
use crate::gate::QueueConfig;
use crate::mutants::{self, Mutant};
use crate::units::Timestamp;

/// First come, first served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fifo;

impl Discipline for Fifo {
    fn next(&self, _list: &List, _now: Timestamp) -> End {
        if mutants::is(Mutant::QueueLifo) { End::Newest } else { End::Oldest }
    }

    fn configure(&mut self, _config: &QueueConfig) {}
}
