//! How long a queue is kept at the gate where an in-flight limit governs:
//!
//! ```text
//! Q*  =  0.1 s F + sqrt(F v 1 s) + v / 2
//! ```
//!
//! where `F` is the work per second that leaves the queue and `v` the mean cost of a visitor. Where requests
//! of sessions under way go before it, `S` cost units per second, the queue is one of first requests, and has
//! to last through lulls of the sessions as well. A newcomer brings a page, `e` times its first request:
//!
//! ```text
//! Q*  =  0.1 s F + sqrt((F + S / e^2) v 1 s) + v / 2
//! ```
//!
//! A tenth of a second of work covers the unevenness of two ticks. The root is a standard deviation: of the
//! `n = F / v` visitors admitted in the second that the waiting room takes to react, `sqrt(n)` more or fewer
//! come, of `v` each. The last term is there because work comes in whole visitors. A shorter queue runs dry
//! by chance; in a longer one visitors wait at the gate instead of in the room.
//!
//! The waiting room keeps this queue, or half of it while that does not run dry (`room/queue_pacer.rs`); what
//! exceeds it corrects the session cap.

/// Part of the queue that covers the unevenness of two ticks, in seconds of work.
const TICKS_S: f64 = 0.1;
/// Time in which the number of those admitted varies like a Poisson number, in seconds.
const REACTION_S: f64 = 1.0;

/// The queue to keep, in cost units, at a gate that sends `flow` cost units per second to the origin, for
/// visitors of `mean_cost` each. At most a quarter of `max_queued`, what the queue may hold.
pub(crate) fn queue_target(flow: f64, mean_cost: f64, max_queued: f64) -> f64 {
    newcomers_target(flow, 0.0, 1.0, mean_cost, max_queued)
}

/// As [`queue_target`], for first requests of newcomers. Requests of sessions go before them, `sessions` cost
/// units per second, and a newcomer brings `first_page_ratio` times the work of its first request.
pub(crate) fn newcomers_target(
    flow: f64,
    sessions: f64,
    first_page_ratio: f64,
    mean_cost: f64,
    max_queued: f64,
) -> f64 {
    let varying = flow + sessions / (first_page_ratio * first_page_ratio);
    let wanted = TICKS_S * flow + (REACTION_S * varying * mean_cost).sqrt() + mean_cost / 2.0;
    // Callers divide by it, also where the queue may hold nothing.
    wanted.min(max_queued / 4.0).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_make_up_for_lulls_of_sessions_with_all_that_they_bring() {
        for (sessions, first_page_ratio, expected) in
            [(0.0, 1.0, 10.0), (300.0, 1.0, 20.0), (4_400.0, 12.0, (100.0_f64 + 4_400.0 / 144.0).sqrt())]
        {
            let target = newcomers_target(100.0, sessions, first_page_ratio, 1.0, f64::MAX);
            assert!((target - 10.5 - expected).abs() < 1e-9, "{sessions} {first_page_ratio}: {target}");
        }
    }

    #[test]
    fn the_queue_is_a_tenth_of_a_second_a_deviation_and_half_a_visitor() {
        for (flow, mean_cost, max_queued, expected) in [
            (100.0, 1.0, f64::MAX, 10.0 + 10.0 + 0.5),
            (100.0, 4.0, f64::MAX, 10.0 + 20.0 + 2.0),
            (0.0, 1.0, f64::MAX, 0.5),
            (100.0, 1.0, 40.0, 10.0),
        ] {
            let target = queue_target(flow, mean_cost, max_queued);
            assert!((target - expected).abs() < 1e-9, "{flow} {mean_cost} {max_queued}: {target}");
        }
        assert!(queue_target(100.0, 1.0, 0.0) > 0.0);
    }
}
