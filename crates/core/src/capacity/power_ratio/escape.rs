//! A load far below what was served before is doubted (beyond the paper).
//!
//! At a low load the power ratio is that of an unloaded service: it does not tell that more could be served.
//! So a discovery that ended too low would hold for good, be it because others took the service's processor
//! just then, or because most of its workers were away and have come back. And a service that stays slow for
//! long is relieved again and again, down to a request in ten seconds, at which no epoch tells anything.
//! While visitors wait, the service is not slow, and
//!
//! ```text
//! c < floor · G      G = the greatest goodput of an epoch so far
//! ```
//!
//! a discovery begins, from c or from c0 if that is more. The service may have become that slow: so every
//! further one waits twice as long, up to a bound, and takes a tenth off G.

/// Epochs for which the load is low before the first discovery: more than one takes, about 25. And at most:
/// an hour with epochs of 8 s.
const FIRST_WAIT: u32 = 40;
const LONGEST_WAIT: u32 = 450;
/// What every discovery that was due to it leaves of G.
const FADE: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Escape {
    /// G, cost units per second.
    served: f64,
    wait: u32,
    /// Epochs for which the load has been low.
    held: u32,
}

impl Escape {
    pub fn new() -> Self {
        Self { served: 0.0, wait: FIRST_WAIT, held: 0 }
    }

    /// The goodput of an epoch in which the service served what was admitted, or as much as it could.
    pub fn served(&mut self, goodput: f64) {
        self.served = self.served.max(goodput);
    }

    /// An epoch in which visitors waited and the service was not slow: is it time for a new discovery?
    pub fn doubts(&mut self, load: f64, floor: f64) -> bool {
        if load >= floor * self.served {
            (self.wait, self.held) = (FIRST_WAIT, 0);
            return false;
        }
        self.held += 1;
        let is_due = self.held >= self.wait;
        if is_due {
            self.held = 0;
            self.wait = (2 * self.wait).min(LONGEST_WAIT);
            self.served *= FADE;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discoveries_become_rarer_and_end_where_the_service_stays_slow() {
        let mut escape = Escape::new();
        escape.served(100.0);
        assert!((0..1000).all(|_| !escape.doubts(31.0, 0.3)), "that is no low load");
        let due: Vec<u32> = (0..20_000).filter(|_| escape.doubts(5.0, 0.3)).collect();
        assert_eq!(due[..6], [39, 119, 279, 599, 1049, 1499]);
        assert_eq!(due.len(), 18, "until G is below 5 / 0.3: 100 · 0.9^18");
        assert!(!escape.doubts(0.0, 0.0), "the paper's own");
    }
}
