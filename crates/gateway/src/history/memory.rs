//! The last quarter of an hour, in memory: answers queries when the disk cannot, and has the newest seconds.

use std::collections::VecDeque;
use std::sync::Arc;

use super::archive::{ARCHIVES, Second, Series};

/// As many seconds as the finest archive has.
const SECONDS: usize = ARCHIVES[0].rows as usize;

#[derive(Clone, Default)]
pub struct Memory {
    seconds: VecDeque<Arc<Second>>,
}

impl Memory {
    /// Adds a second. After the clock has jumped back, new seconds replace the old ones of the same time.
    pub fn push(&mut self, second: Arc<Second>) {
        while self.seconds.back().is_some_and(|newest| newest.at >= second.at) {
            self.seconds.pop_back();
        }
        while self.seconds.len() >= SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }

    pub fn first(&self) -> Option<u64> {
        self.seconds.front().map(|second| second.at)
    }

    pub fn last(&self) -> Option<u64> {
        self.seconds.back().map(|second| second.at)
    }

    /// Values of one series, every second from `from` up to, but not including, `to`.
    pub fn read<'m>(
        &'m self,
        series: &'m Series,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, &'m [f32])> {
        let begin = self.seconds.partition_point(|second| second.at < from);
        let inside = self.seconds.range(begin..).take_while(move |second| second.at < to);
        inside.filter_map(move |second| {
            let (_, values) = second.series.iter().find(|(s, _)| s == series)?;
            Some((second.at, &values[..]))
        })
    }

    pub fn series(&self) -> Vec<Series> {
        self.seconds
            .back()
            .map(|second| second.series.iter().map(|(s, _)| s.clone()).collect())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ats(memory: &Memory, from: u64, to: u64) -> Vec<u64> {
        memory.read(&Series::all(), from, to).map(|(at, _)| at).collect()
    }

    #[test]
    fn it_keeps_the_newest_and_follows_a_clock_that_jumps_back() {
        let mut memory = Memory::default();
        let mut push =
            |at| memory.push(Arc::new(Second { at, series: vec![(Series::all(), vec![at as f32])] }));
        (0..2_000).for_each(&mut push);
        push(1_990);
        assert_eq!((memory.first(), memory.last()), (Some(1_100), Some(1_990)));
        assert_eq!(ats(&memory, 1_988, 3_000), [1_988, 1_989, 1_990]);
        assert_eq!(ats(&memory, 0, 1_102), [1_100, 1_101]);
        assert!(memory.read(&Series::gate(), 0, 3_000).next().is_none());
    }
}
