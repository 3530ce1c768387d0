//! Atomics of the lock-free parts: the standard ones, or loom's under the model checker.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::units::{Cost, Rate, Timestamp};

/// Locks data that is consistent even after a panic, so a poisoned lock is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that fits one 64-bit word.
pub(crate) trait Word: Copy {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! word {
    ($value:ty, $to:expr, $from:expr) => {
        impl Word for $value {
            fn to_word(self) -> u64 {
                ($to)(self)
            }

            fn from_word(word: u64) -> Self {
                ($from)(word)
            }
        }
    };
}

word!(f64, f64::to_bits, f64::from_bits);
word!(Cost, Cost::hundredths, Cost::from_hundredths);
word!(Timestamp, Timestamp::as_micros, Timestamp::from_micros);
// In whole microseconds.
word!(Duration, |span: Self| span.as_micros() as u64, Duration::from_micros);
word!(Rate, |rate: Self| rate.get().to_bits(), |word| {
    Self::per_second(f64::from_bits(word)).unwrap_or_default()
});
// The largest cost means `None`; as a value it becomes the one below it.
word!(Option<Cost>, |cost: Self| cost.map_or(u64::MAX, |cost| cost.hundredths().min(u64::MAX - 1)), |word| {
    (word != u64::MAX).then(|| Cost::from_hundredths(word))
});

/// A value that some threads publish and others read. All accesses are `Relaxed`: they order no other memory.
#[derive(Debug)]
pub(crate) struct Atomic<T> {
    word: AtomicU64,
    value: PhantomData<T>,
}

pub(crate) type AtomicF64 = Atomic<f64>;

impl<T: Word> Atomic<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { word: AtomicU64::new(value.to_word()), value: PhantomData }
    }

    pub(crate) fn load(&self) -> T {
        T::from_word(self.word.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, value: T) {
        self.word.store(value.to_word(), Ordering::Relaxed);
    }

    pub(crate) fn swap(&self, value: T) -> T {
        T::from_word(self.word.swap(value.to_word(), Ordering::Relaxed))
    }
}

impl<T: Word + Default> Default for Atomic<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl Atomic<Cost> {
    /// Adds, modulo 2^64 hundredths.
    pub(crate) fn add(&self, cost: Cost) {
        self.word.fetch_add(cost.hundredths(), Ordering::Relaxed);
    }

    /// Takes out the whole sum.
    pub(crate) fn take(&self) -> Cost {
        self.swap(Cost::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn comes_back<T: Word + PartialEq + Debug>(values: &[T]) {
        for value in values {
            assert_eq!(T::from_word(value.to_word()), *value);
            let cell = Atomic::new(values[0]);
            assert_eq!((cell.swap(*value), cell.load()), (values[0], *value));
        }
    }

    #[test]
    fn values_come_back_from_their_words() {
        comes_back(&[0.0, -1.5, f64::MAX, f64::MIN_POSITIVE]);
        comes_back(&[Rate::ZERO, Rate::MAX, Rate::per_second(0.1).unwrap_or_default()]);
        comes_back(&[Cost::ZERO, Cost::MAX]);
        comes_back(&[None, Some(Cost::ZERO), Some(Cost::from_hundredths(u64::MAX - 1))]);
        comes_back(&[Timestamp::from_secs(1_800_000_000), Timestamp::default()]);
        comes_back(&[Duration::ZERO, Duration::from_micros(1), Duration::from_secs(86_400)]);
    }

    #[test]
    fn the_largest_cost_is_not_taken_for_none() {
        let cell = Atomic::new(Some(Cost::from_hundredths(u64::MAX)));
        assert_eq!(cell.load(), Some(Cost::from_hundredths(u64::MAX - 1)));
    }

    #[test]
    fn sums_of_costs_are_taken_once() {
        let sum = Atomic::new(Cost::ZERO);
        sum.add(Cost::ONE);
        sum.add(Cost::MIN);
        assert_eq!((sum.take(), sum.take()), (Cost::from_hundredths(101), Cost::ZERO));
    }
}
