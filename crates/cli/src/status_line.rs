//! The live line on a terminal: how many come, get in, wait, and how fast the origin answers.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_gateway::driver::{Control, Figures};

/// A line that is being kept up to date.
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
                // One write: log lines of other threads do not cut it.
                let line = format!("\r\x1b[K{}", line(&control.figures()));
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
    /// Ends the line.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

fn line(f: &Figures) -> String {
    let capacity = if f.capacity < tidegate_core::units::Rate::MAX {
        format!("{:.0}", f.capacity.get())
    } else {
        "∞".into()
    };
    let total = f.window.total();
    format!(
        "offered {:.0}/s  admitted {:.0}/s of {capacity}  waiting {} ({})  response {} (p99 {})  in flight {}",
        total.offered_per_s,
        total.admitted_per_s,
        f.room.waiting,
        human(f.room.wait),
        known(total.response.mean),
        known(total.response.p99),
        f.gate.in_flight,
    )
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
