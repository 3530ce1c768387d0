//! Where each request is, by the simulator's number for it: the lower half of an identity is its slot in a
//! slab, the upper half tells it from those that had the slot before. So a look-up is an index, and the table
//! is as large as the most requests there ever were at once.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// In the gate's queue, at this position in the order of arrival.
    Waits(u64),
    AtOrigin,
}

#[derive(Default)]
pub(super) struct RequestSlots {
    /// By slot: the request that has it.
    slots: Vec<Option<(u64, Where)>>,
    pub(super) waiting: usize,
    pub(super) at_origin: usize,
}

impl RequestSlots {
    /// Notes a request. One that had its slot before is lost, but still counted, so the ledger does not
    /// balance.
    pub(super) fn put(&mut self, id: u64, at: Where) {
        let slot = id as u32 as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = Some((id, at));
        *self.count(at) += 1;
    }

    pub(super) fn find(&self, id: u64) -> Option<Where> {
        let (whose, at) = (*self.slots.get(id as u32 as usize)?)?;
        (whose == id).then_some(at)
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Where> {
        let at = self.find(id)?;
        self.slots[id as u32 as usize] = None;
        *self.count(at) -= 1;
        Some(at)
    }

    fn count(&mut self, at: Where) -> &mut usize {
        match at {
            Where::Waits(_) => &mut self.waiting,
            Where::AtOrigin => &mut self.at_origin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_its_newest_request() {
        let (first, second) = (1 << 32 | 5, 2 << 32 | 5);
        let mut slots = RequestSlots::default();
        slots.put(first, Where::Waits(1));
        assert_eq!((slots.find(first), slots.find(second)), (Some(Where::Waits(1)), None));
        assert_eq!(slots.take(first), Some(Where::Waits(1)));
        assert_eq!((slots.take(first), slots.waiting), (None, 0));
        slots.put(first, Where::AtOrigin);
        slots.put(second, Where::AtOrigin);
        assert_eq!(slots.take(first), None);
        assert_eq!(slots.at_origin, 2, "one was lost: the books must not close");
    }
}
