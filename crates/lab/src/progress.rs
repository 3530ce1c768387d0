//! Progress of a run: a line that is written anew on a terminal, a line now and then elsewhere, nothing for
//! programs. All of it goes to standard error, so that results alone are on standard output.
//!
//! Rates and response times are those of the last few seconds: over the whole run, the worst minute of an
//! hour would not be seen while it lasts.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::units::{count, fine_millis, per_second, span};
use crate::tally::Tally;

#[cfg(test)]
mod tests;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How far back "the last seconds" go.
const WINDOW: Duration = Duration::from_secs(5);
/// Between two marks that the window begins at. A mark holds a histogram, 200 kB.
const MARK_EVERY: Duration = Duration::from_secs(1);

pub struct Progress {
    shown: Shown,
    window: Window,
}

enum Shown {
    Silent,
    Bar(ProgressBar),
    Lines { name: String, visitors: u64, next: Duration },
}

impl Progress {
    /// For a run of about `visitors`; 0: nobody knows, or it has no end. `silent` shows nothing.
    pub fn new(silent: bool, name: &str, visitors: u64) -> Self {
        let shown = if silent {
            Shown::Silent
        } else if std::io::stderr().is_terminal() {
            Shown::Bar(bar(name, visitors))
        } else {
            Shown::Lines { name: name.to_string(), visitors, next: Duration::ZERO }
        };
        Self { shown, window: Window::default() }
    }

    /// The figures at `now`, counted from the start of the run.
    pub fn show(&mut self, tally: &Tally, now: Duration) {
        if matches!(self.shown, Shown::Silent) {
            return;
        }
        self.window.mark(tally, now);
        match &mut self.shown {
            Shown::Silent => {}
            Shown::Bar(bar) => {
                bar.set_position(tally.gone());
                bar.set_message(self.window.line(tally, now));
            }
            Shown::Lines { name, visitors, next } => {
                let over = *visitors > 0 && tally.gone() == *visitors;
                if now >= *next || over {
                    eprintln!("{name}: {}", self.window.line(tally, now));
                    *next = if over { Duration::MAX } else { now + LINE_EVERY };
                }
            }
        }
    }

    /// The run is over; what was shown last stays.
    pub fn finish(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish();
        }
    }
}

fn bar(name: &str, visitors: u64) -> ProgressBar {
    let (bar, template) = match visitors {
        0 => (ProgressBar::new_spinner(), "  {prefix:<17} {spinner} {wide_msg}"),
        n => (ProgressBar::new(n), "  {prefix:<17} {bar:12} {wide_msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("━━╌"));
    bar.set_prefix(name.to_string());
    bar
}

struct Mark {
    at: Duration,
    offered: u64,
    served: u64,
    response_us: Histogram<u64>,
}

/// The last seconds: their beginning is the oldest mark.
#[derive(Default)]
struct Window(VecDeque<Mark>);

impl Window {
    /// Remembers `now`, if the last mark is old enough, and forgets marks that are too old.
    fn mark(&mut self, tally: &Tally, now: Duration) {
        if self.0.back().is_some_and(|last| now < last.at + MARK_EVERY) {
            return;
        }
        // The oldest mark goes only when the next one covers the window as well.
        while self.0.get(1).is_some_and(|second| second.at + WINDOW <= now) {
            self.0.pop_front();
        }
        let Tally { offered, served, .. } = *tally;
        self.0.push_back(Mark { at: now, offered, served, response_us: tally.response_us.clone() });
    }

    /// Time, rates, levels, errors, and response times of the last seconds.
    fn line(&self, tally: &Tally, now: Duration) -> String {
        let mut line = span(now.as_secs_f64());
        let start = self.0.front();
        let seconds = now.saturating_sub(start.map_or(Duration::ZERO, |mark| mark.at)).as_secs_f64();
        if seconds > 0.0 {
            let (offered, served) = start.map_or((0, 0), |mark| (mark.offered, mark.served));
            let rate = |now: u64, before: u64| per_second(now.saturating_sub(before) as f64 / seconds);
            line +=
                &format!("  offered {}  served {}", rate(tally.offered, offered), rate(tally.served, served));
        }
        line += &format!(
            "  waiting {}  in flight {}  errors {}",
            count(tally.waiting),
            count(tally.in_flight),
            count(tally.failures.total()),
        );
        let recent = self.recent(tally).filter(|recent| !recent.is_empty());
        if let Some(recent) = recent {
            let ms = |q| fine_millis(recent.value_at_quantile(q) as f64 / 1000.0);
            line += &format!("  p50 {}  p99 {}", ms(0.5), ms(0.99));
        }
        line
    }

    fn recent(&self, tally: &Tally) -> Option<Histogram<u64>> {
        let mut recent = tally.response_us.clone();
        if let Some(mark) = self.0.front() {
            // Fails if there is less than there was: then these are not figures of one run.
            recent.subtract(&mark.response_us).ok()?;
        }
        Some(recent)
    }
}
