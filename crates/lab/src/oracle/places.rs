//! Where each request is, by the simulator's number for it: the lower half of an identity is its place in a slab, the upper half
//! tells it from those that had the place before. So a look-up is an index, and the table is as large as the most requests there
//! ever were at once.

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// In the gate's queue, in this place of the order of arrival.
    Waits(u64),
    /// At the origin.
    AtOrigin,
}

/// The table.
#[derive(Default)]
pub(super) struct Places {
    /// By place: whose it is.
    places: Vec<Option<(u64, Where)>>,
    waiting: usize,
    at_origin: usize,
}

impl Places {
    /// Notes a request. One that is noted in its place already is lost, but still counted: the books do not close then.
    pub(super) fn put(&mut self, id: u64, at: Where) {
        let place = id as u32 as usize;
        if self.places.len() <= place {
            self.places.resize(place + 1, None);
        }
        self.places[place] = Some((id, at));
        *self.count(at) += 1;
    }

    pub(super) fn find(&self, id: u64) -> Option<Where> {
        let (whose, at) = (*self.places.get(id as u32 as usize)?)?;
        (whose == id).then_some(at)
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Where> {
        let at = self.find(id)?;
        self.places[id as u32 as usize] = None;
        *self.count(at) -= 1;
        Some(at)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn at_origin(&self) -> usize {
        self.at_origin
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
    fn a_place_is_its_newest_requests() {
        let (first, second) = (1 << 32 | 5, 2 << 32 | 5);
        let mut places = Places::default();
        places.put(first, Where::Waits(1));
        assert_eq!((places.find(first), places.find(second)), (Some(Where::Waits(1)), None));
        assert_eq!(places.take(first), Some(Where::Waits(1)));
        assert_eq!((places.take(first), places.waiting()), (None, 0));
        places.put(first, Where::AtOrigin);
        places.put(second, Where::AtOrigin);
        assert_eq!(places.take(first), None);
        assert_eq!(places.at_origin(), 2, "one was lost: the books must not close");
    }
}
