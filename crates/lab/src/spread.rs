//! Work spread over threads, its results in the order of the work: the number of threads leaves no trace.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Does `work` on every item, on so many threads. Nothing is begun once `stop` is set; what was not done, or
/// broke off with an assertion, is an error that says so.
pub(crate) fn spread<T: Send, R: Send>(
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(T) -> Result<R, String> + Sync,
) -> Vec<Result<R, String>> {
    let (next, done) = (Mutex::new(items.into_iter().enumerate()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Some((at, item)) = next.lock().next() else { return };
                    let panicked =
                        |cause: Box<dyn Any + Send>| Err(format!("panicked: {}", cause_of(&*cause)));
                    let result = catch_unwind(AssertUnwindSafe(|| work(item))).unwrap_or_else(panicked);
                    done.lock().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.extend(next.into_inner().map(|(at, _)| (at, Err("interrupted".into()))));
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The message of a panic.
pub(crate) fn cause_of(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("an unknown cause").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_work() {
        let items: Vec<u32> = (0..50).collect();
        let stop = AtomicBool::new(false);
        let square = |n: &u32| if *n == 7 { Err("seven".to_owned()) } else { Ok(n * n) };
        let one = spread(&items, 1, &stop, square);
        assert_eq!(one, spread(&items, 8, &stop, square));
        assert_eq!((&one[3], &one[7]), (&Ok(9), &Err("seven".to_owned())));
        stop.store(true, Ordering::Relaxed);
        assert!(spread(&items, 2, &stop, square).iter().all(|done| done == &Err("interrupted".to_owned())));
    }
}
