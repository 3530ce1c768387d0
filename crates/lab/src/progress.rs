//! Progress of a run: a bar on a terminal, a line now and then elsewhere, nothing for programs.
//! All of it goes to standard error, so that results alone are on standard output.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::tally::Tally;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(crate) enum Progress {
    Silent,
    Bar(ProgressBar),
    Lines { name: &'static str, visitors: u64, next: Duration },
}

impl Progress {
    /// For a run of `visitors`; 0: a run without end.
    pub(crate) fn new(silent: bool, name: &'static str, visitors: u64) -> Self {
        if silent {
            return Self::Silent;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { name, visitors, next: Duration::ZERO };
        }
        let (bar, template) = match visitors {
            0 => (ProgressBar::new_spinner(), "  {prefix:<17} {spinner} {msg}"),
            n => (ProgressBar::new(n), "  {prefix:<17} {bar:28} {msg}"),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━━╌"));
        bar.set_prefix(name);
        Self::Bar(bar)
    }

    pub(crate) fn show(&mut self, tally: &Tally, now: Duration) {
        match self {
            Self::Silent => {}
            Self::Bar(bar) => {
                bar.set_position(tally.gone());
                bar.set_message(figures(tally));
            }
            Self::Lines { name, visitors, next } => {
                let over = *visitors > 0 && tally.gone() == *visitors;
                if now >= *next || over {
                    eprintln!("{name}: {:.0} s, {}", now.as_secs_f64(), figures(tally));
                    *next = if over { Duration::MAX } else { now + LINE_EVERY };
                }
            }
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish();
        }
    }
}

fn figures(tally: &Tally) -> String {
    format!("served {}, failed {}, waiting {}", tally.served, tally.failed, tally.waiting)
}
