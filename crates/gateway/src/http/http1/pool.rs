//! Memory that requests need and idle connections do not, some kilobytes of it: the thread's next request
//! uses it again.

use std::any::Any;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

/// Places kept by a thread, of each kind: as many requests as a worker usually serves at once.
const KEPT: usize = 256;

thread_local! {
    /// One pool for each type that is kept; there are few but in tests.
    static POOLS: RefCell<Vec<Rc<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Places that hold nothing.
pub(super) struct Pool<T>(RefCell<Vec<Pin<Box<Option<T>>>>>);

/// A place with something in it, until it is dropped.
pub(super) struct Place<T>(Pin<Box<Option<T>>>);

impl<T: 'static> Pool<T> {
    /// The thread's pool for this type.
    pub(super) fn of_thread() -> Rc<Self> {
        POOLS.with_borrow_mut(|pools| {
            let known = pools.iter().find_map(|pool| pool.clone().downcast().ok());
            known.unwrap_or_else(|| {
                let pool = Rc::new(Self(RefCell::default()));
                pools.push(pool.clone());
                pool
            })
        })
    }

    pub(super) fn place(&self, it: T) -> Place<T> {
        let place = self.0.borrow_mut().pop();
        Place(match place {
            Some(mut place) => {
                place.set(Some(it));
                place
            }
            None => Box::pin(Some(it)),
        })
    }

    /// Drops what is in the place, and keeps the place.
    pub(super) fn put_back(&self, Place(mut place): Place<T>) {
        place.set(None);
        let mut places = self.0.borrow_mut();
        if places.len() < KEPT {
            places.push(place);
        }
    }
}

impl<T> Place<T> {
    pub(super) fn get(&mut self) -> Pin<&mut T> {
        match self.0.as_mut().as_pin_mut() {
            Some(it) => it,
            None => unreachable!("a place is empty in its pool only"),
        }
    }
}
