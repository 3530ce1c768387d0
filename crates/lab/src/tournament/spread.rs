//! Work spread over threads, its results in the order of the work: the number of threads leaves no trace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does `work` on every item, on so many threads. Nothing is begun once `stop` is set; what was not done, or
/// broke off with an assertion, is an error that says so.
pub(super) fn spread<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(&T) -> Result<R, String> + Sync,
) -> Vec<Result<R, String>> {
    let next = AtomicUsize::new(0);
    let mut done: Vec<Option<Result<R, String>>> = items.iter().map(|_| None).collect();
    let results = Mutex::new(&mut done);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| work(item))).unwrap_or_else(panicked);
                    results.lock().unwrap_or_else(|e| e.into_inner())[at] = Some(result);
                }
            });
        }
    });
    done.into_iter().map(|result| result.unwrap_or_else(|| Err("interrupted".into()))).collect()
}

fn panicked<R>(cause: Box<dyn std::any::Any + Send>) -> Result<R, String> {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("an unknown cause");
    Err(format!("panicked: {what}"))
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
