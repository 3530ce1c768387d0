//! How long a queue is kept at a gate that has an in-flight limit:
//!
//! ```text
//! Q*  =  0.1 s F + sqrt(F v 1 s) + v / 2
//! ```
//!
//! where `F` is the work per second that leaves the queue and `v` the mean cost of a visitor. Where requests
//! of sessions under way go before it, the queue is one of first requests, and has to last through lulls of
//! the sessions as well. A newcomer brings a page, `e` times its first request; `S` cost units per second are
//! asked for besides:
//!
//! ```text
//! Q*  =  0.1 s F + sqrt((F + S / e^2) v 1 s + B^2) + v / 2
//! ```
//!
//! `B` is the work of first requests at the origin. Where all requests last equally long they end in step,
//! and the next `B` leave the queue all at once. Each newcomer who is missing then is a page that is missing
//! one response time later. (Measured: up to 1.5 % of the capacity, with pages of twelve requests and
//! visitors who come by whole seconds; a quarter of `B^2` is worth half of that.)
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
    queue(flow, REACTION_S * flow * mean_cost, mean_cost, max_queued)
}

/// What sessions ask for at a gate where newcomers begin them. Work in cost units.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SessionLoad {
    /// Requests of sessions under way per second, without those of first pages (`S`).
    pub(crate) sessions: f64,
    /// Work of a newcomer's first page over that of its first request (`e`).
    pub(crate) first_page_ratio: f64,
    /// All work at the origin, of which first requests have their share (`B`).
    pub(crate) at_origin: f64,
}

/// As [`queue_target`], for first requests of newcomers, where requests of sessions go before them.
pub(crate) fn newcomers_target(flow: f64, load: &SessionLoad, mean_cost: f64, max_queued: f64) -> f64 {
    let SessionLoad { sessions, first_page_ratio, at_origin } = *load;
    // Visitors without sessions bring nothing: one who is missing is not missed later.
    if sessions <= 0.0 && first_page_ratio <= 1.0 {
        return queue_target(flow, mean_cost, max_queued);
    }
    let lulls = (flow + sessions / (first_page_ratio * first_page_ratio)) * mean_cost * REACTION_S;
    let first_requests = at_origin * flow / (flow * first_page_ratio + sessions).max(f64::MIN_POSITIVE);
    queue(flow, lulls + first_requests * first_requests, mean_cost, max_queued)
}

fn queue(flow: f64, variance: f64, mean_cost: f64, max_queued: f64) -> f64 {
    let wanted = TICKS_S * flow + variance.sqrt() + mean_cost / 2.0;
    // Callers divide by it, also where the queue may hold nothing.
    wanted.min(max_queued / 4.0).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_make_up_for_lulls_of_sessions_with_all_that_they_bring() {
        let lulls_of_pages = (100.0_f64 + 4_400.0 / 144.0).sqrt();
        for (sessions, first_page_ratio, expected) in
            [(0.0, 1.0, 10.0), (300.0, 1.0, 20.0), (4_400.0, 12.0, lulls_of_pages)]
        {
            let load = SessionLoad { sessions, first_page_ratio, at_origin: 0.0 };
            let target = newcomers_target(100.0, &load, 1.0, f64::MAX);
            assert!((target - 10.5 - expected).abs() < 1e-9, "{sessions} {first_page_ratio}: {target}");
        }
    }

    #[test]
    fn the_queue_lasts_while_first_requests_leave_it_in_step() {
        let target = |sessions, first_page_ratio, at_origin| {
            let load = SessionLoad { sessions, first_page_ratio, at_origin };
            newcomers_target(100.0, &load, 1.0, f64::MAX)
        };
        // A tenth of 240 requests are first requests, and a twentieth where sessions ask for as much again.
        for (sessions, lulls, batch) in [(0.0, 100.0_f64, 24.0_f64), (1_000.0, 110.0, 12.0)] {
            let expected = 10.5 + (lulls + batch * batch).sqrt();
            assert!((target(sessions, 10.0, 240.0) - expected).abs() < 1e-9, "{sessions}");
        }
        assert_eq!(target(0.0, 1.0, 240.0), target(0.0, 1.0, 0.0), "newcomers bring nothing");
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
