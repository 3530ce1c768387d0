//! The live line on a terminal: requests offered and admitted, visitors waiting, response times.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::capacity::Phase;
use tidegate_core::control::Tunables;
use tidegate_core::measure::Event;
use tidegate_core::units::Rate;
use tidegate_gateway::control::driver::Control;
use tidegate_gateway::shared::figures::Figures;

/// A line that a thread keeps up to date.
pub struct StatusLine {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Starts the line if standard output is a terminal.
pub fn start(control: Arc<Control>) -> Option<StatusLine> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::Builder::new()
        .name("status-line".into())
        .spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // In one write, so that log lines of other threads do not cut it.
                let line = format!("\r\x1b[K{}{}", line(&control.figures()), in_shadow(&control));
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                drop(out);
                std::thread::park_timeout(Duration::from_millis(500));
            }
            println!();
        })
        .ok()?;
    Some(StatusLine { stop, thread })
}

impl StatusLine {
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

fn line(f: &Figures) -> String {
    let total = f.window.total();
    format!(
        "offered {:.0}/s  admitted {:.0}/s  {}  waiting {} ({})  response {} (p99 {})  at the origin {}",
        total.offered_per_s,
        total.admitted_per_s,
        capacity(&f.tunables, f.estimate.phase),
        f.room.waiting,
        human(f.room.wait),
        known(total.response.mean),
        known(total.response.p99),
        f.gate.in_flight,
    )
}

/// Whom the gate would have held since the start; nothing where it holds them.
fn in_shadow(control: &Control) -> String {
    let is_shadow = control.shared().config.load().settings.enforcement.shadow;
    let total = &control.figures().total;
    if is_shadow { would(|event| total.event(event)) } else { String::new() }
}

fn would(count: impl Fn(Event) -> u64) -> String {
    let waited = count(Event::RoomWouldWait);
    let refused = count(Event::RoomWouldRefuse) + count(Event::SessionsWouldRefuse);
    format!("  shadow: {waited} would have waited, {refused} been refused")
}

/// "settled 98/s, 10 in flight", or what else is known of the capacity.
fn capacity(tunables: &Tunables, phase: Phase) -> String {
    let doing = match phase {
        Phase::Configured => "capacity",
        Phase::Searching => "discovering",
        Phase::Settled => "settled",
        Phase::Paused => "paused",
    };
    let rate = if tunables.capacity < Rate::MAX {
        format!("{:.0}/s", tunables.capacity.get())
    } else {
        "unlimited".into()
    };
    match tunables.max_in_flight {
        Some(limit) => format!("{doing} {rate}, {limit} in flight"),
        None => format!("{doing} {rate}"),
    }
}

fn known(time: Option<Duration>) -> String {
    time.map_or_else(|| "–".into(), human)
}

fn human(d: Duration) -> String {
    match d.as_secs_f64() {
        s if s >= 60.0 => format!("{:.0} min", s / 60.0),
        s if s >= 1.0 => format!("{s:.1} s"),
        s => format!("{:.0} ms", s * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_shadow_the_line_says_who_would_have_been_held() {
        let counts = |event| match event {
            Event::RoomWouldWait => 12,
            Event::RoomWouldRefuse => 3,
            Event::SessionsWouldRefuse => 4,
            _ => 1_000,
        };
        assert_eq!(would(counts), "  shadow: 12 would have waited, 7 been refused");
    }

    #[test]
    fn the_capacity_is_shown_with_its_origin_and_age() {
        let tunables = |rate: f64, max_in_flight| {
            let capacity = Rate::per_second(rate).unwrap_or_default();
            Tunables { outflow: capacity, capacity, max_in_flight }
        };
        for (rate, limit, phase, said) in [
            (98.4, Some(10), Phase::Settled, "settled 98/s, 10 in flight"),
            (20.0, Some(4), Phase::Searching, "discovering 20/s, 4 in flight"),
            (100.0, None, Phase::Configured, "capacity 100/s"),
            (1e9, None, Phase::Configured, "capacity unlimited"),
        ] {
            assert_eq!(capacity(&tunables(rate, limit), phase), said);
        }
    }
}
