//! Among how many requests a sample was served, and whether that shows the origin at its limit.
//!
//! A sample counts at the number in flight when it was sent, if hardly a slot was free then. At the begin of
//! a burst a request is sent among few and served among many: in the bin of the few its response time would
//! make the base too slow and the knee too high, the more so the slower the load rises.
//!
//! Requests may also end all at once: browsers ask for the parts of their pages together, and workers that
//! began together are ready together. The slots are then empty for some milliseconds only. Those sent first
//! find free workers, and those sent last wait for all that the limit is beyond the knee. The last alone
//! would show a knee far too low: of 191 in flight at 160 workers, the last tenth takes two services, so that
//! the knee seems to be 91. So while the slots are full on average, the others count too, at that average.

use crate::decaying::keep;

/// Share of the slots that must be taken when a sample is sent, or on average; below 1: a probe up fills its
/// slots at once.
const FULL: f64 = 0.9;
/// With fewer slots the average is not used: a single free one is more than a tenth of them. With it, origins
/// of one or two workers lost up to a quarter of their goodput.
const FEW: u32 = 10;
/// Memory of the average, in seconds: several responses of an ordinary origin, and ten ticks.
const MEMORY_S: f64 = 1.0;

/// Share of the slots that are taken, on average.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Occupancy(f64);

impl Occupancy {
    /// Lets time pass with so many requests in flight, of `limit` slots.
    pub fn pass(&mut self, in_flight: u32, limit: u32, dt_s: f64) {
        let taken = f64::from(in_flight) / f64::from(limit.max(1));
        self.0 += (taken.min(1.0) - self.0) * (1.0 - keep(dt_s, MEMORY_S));
    }

    /// Requests among which a sample was served that was sent as the last of `in_flight`, of `slots`; `None`:
    /// slots were free, and it shows the load and not the origin.
    pub fn among(self, in_flight: u32, slots: u32) -> Option<f64> {
        let (sent_among, all) = (f64::from(in_flight), f64::from(slots));
        if sent_among >= FULL * all {
            return Some(sent_among);
        }
        (slots >= FEW && self.0 >= FULL).then_some(self.0 * all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(in_flight: u32, ticks: u32) -> Occupancy {
        let mut occupancy = Occupancy::default();
        (0..ticks).for_each(|_| occupancy.pass(in_flight, 100, 0.1));
        occupancy
    }

    #[test]
    fn a_sample_sent_among_few_counts_where_the_slots_are_full_on_average() {
        let full = after(100, 100);
        assert!(full.among(20, 100).is_some_and(|among| (99.0..=100.0).contains(&among)), "{full:?}");
        assert_eq!(
            (full.among(95, 100), full.among(120, 100)),
            (Some(95.0), Some(120.0)),
            "those sent as the last"
        );
        let burst = after(100, 5);
        assert_eq!((burst.among(20, 100), burst.among(90, 100)), (None, Some(90.0)), "{burst:?}");
        assert_eq!(after(80, 100).among(80, 100), None);
    }

    #[test]
    fn few_slots_must_all_be_taken() {
        assert_eq!((after(100, 100).among(8, 9), after(100, 100).among(9, 9)), (None, Some(9.0)));
    }
}
