//! Last come, first served (MASTH 2.3): under overload some are served at once and the others not at all, instead of all too
//! late. Whoever waits at the other end is given up when its patience ends.

use super::{Discipline, End, List};
use crate::gate::QueueConfig;
use crate::units::Timestamp;

/// Last come, first served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifo;

impl Discipline for Lifo {
    fn next(&self, _list: &List, _now: Timestamp) -> End {
        End::Newest
    }

    fn configure(&mut self, _config: &QueueConfig) {}
}
