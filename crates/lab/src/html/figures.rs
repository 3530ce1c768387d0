//! Which figures a report has: each kind once per outcome, side by side, and where there are several, what
//! matters most in one.

use crate::outcome::{Outcome, Second};
use crate::plot::{Line, Plot, Style};

pub(super) struct Section {
    pub title: &'static str,
    pub caption: &'static str,
    pub plots: Vec<Plot>,
    /// Whether they show the same of several outcomes, and so belong on the same axes.
    pub alike: bool,
}

/// From here on the larger response times would press the smaller ones flat: a logarithmic axis.
const LOG_FROM: f64 = 20.0;

pub(super) fn sections(outcomes: &[&Outcome]) -> Vec<Section> {
    let scale = Scale::of(outcomes);
    let each = |title, caption, plot: fn(&Outcome, &Scale) -> Plot| {
        let plots = outcomes.iter().map(|outcome| plot(outcome, &scale)).collect();
        Section { title, caption, plots, alike: true }
    };
    let mut sections = Vec::new();
    if outcomes.len() > 1 {
        let response = compare("Mean response time", "milliseconds", outcomes, &scale, response_mean);
        sections.push(Section {
            title: "Compared",
            caption: "Requests served in each second, and their mean response time from the intended send; requests \
                      that were given up count with the time until then.",
            plots: vec![
                compare("Goodput", "requests per second", outcomes, &scale, |s| Some(s.served as f64)),
                Plot { log_y: scale.log_response, ..response },
            ],
            alike: false,
        });
    }
    sections.extend([
        each(
            "Offered and served",
            "Visitors who came, requests that were served, and, where it is known, requests that reached the \
             origin, in each second.",
            rates,
        ),
        each(
            "Waiting and under way",
            "Visitors in the waiting room and requests under way, at the end of each second, and, where \
             there is one, how many requests the gate lets the origin work on at once.",
            levels,
        ),
        each(
            "Response times",
            "Of the requests served or given up in each second, from the intended send.",
            responses,
        ),
    ]);
    if outcomes.iter().any(|outcome| outcome.figure("told_to_wait") > 0.0) {
        sections.push(each(
            "Waits",
            "By the second in which a visitor came: how long it waited until it was let in, 0 if at once, \
             and how long it was first told to.",
            waits,
        ));
    }
    sections
}

struct Scale {
    /// Seconds in a unit of the time axis, and the axis' name.
    unit: (f64, &'static str),
    log_response: bool,
}

impl Scale {
    fn of(outcomes: &[&Outcome]) -> Self {
        let seconds = outcomes.iter().map(|outcome| outcome.series.len()).max().unwrap_or(0);
        let unit = match seconds {
            0..=900 => (1.0, "time (s)"),
            901..=14_400 => (60.0, "time (min)"),
            _ => (3600.0, "time (h)"),
        };
        let times = || outcomes.iter().flat_map(|outcome| &outcome.series).filter_map(response_mean);
        let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
        Self { unit, log_response: most > LOG_FROM * least }
    }

    fn plot(&self, title: String, y_label: &str, lines: Vec<Line>) -> Plot {
        Plot { title, x_label: self.unit.1.into(), y_label: y_label.into(), lines, ..Plot::default() }
    }

    fn plot_of(&self, outcome: &Outcome, what: &str, y_label: &str, lines: Vec<Line>) -> Plot {
        self.plot(format!("{what}: {}", outcome.name), y_label, lines)
    }

    /// A line over the seconds; where there is nothing to tell, a gap.
    fn line(
        &self,
        name: &str,
        style: Style,
        outcome: &Outcome,
        value: impl Fn(&Second) -> Option<f64>,
    ) -> Line {
        // A level or a mean of a second is drawn at its end and over it, respectively: both as steps from its
        // start.
        let point = |second: &Second| (second.t as f64 / self.unit.0, value(second).unwrap_or(f64::NAN));
        Line { name: name.into(), style, points: outcome.series.iter().map(point).collect() }
    }
}

fn compare(
    title: &str,
    y_label: &str,
    outcomes: &[&Outcome],
    scale: &Scale,
    value: fn(&Second) -> Option<f64>,
) -> Plot {
    let lines = outcomes.iter().map(|outcome| scale.line(&outcome.name, Style::Line, outcome, value));
    scale.plot(title.into(), y_label, lines.collect())
}

fn rates(outcome: &Outcome, scale: &Scale) -> Plot {
    let mut lines = vec![
        scale.line("visitors who came", Style::Steps, outcome, |s| Some(s.offered as f64)),
        scale.line("requests served", Style::Steps, outcome, |s| Some(s.served as f64)),
    ];
    if outcome.figure("door_rps_max") > 0.0 {
        lines.push(scale.line("arrived at the origin", Style::Steps, outcome, |s| Some(s.door as f64)));
    }
    let capacity = |s: &Second| (s.capacity_rps > 0.0).then_some(s.capacity_rps);
    let mut known: Vec<f64> = outcome.series.iter().filter_map(capacity).collect();
    known.dedup();
    let mut h_lines = Vec::new();
    match known.as_slice() {
        [] => {}
        [always] => h_lines.push(("capacity".to_string(), *always)),
        _ => lines.push(scale.line("capacity", Style::Steps, outcome, capacity)),
    }
    Plot { h_lines, ..scale.plot_of(outcome, "Offered and served", "per second", lines) }
}

fn levels(outcome: &Outcome, scale: &Scale) -> Plot {
    let mut lines = vec![
        scale.line("visitors waiting", Style::Steps, outcome, |s| Some(s.waiting as f64)),
        scale.line("requests under way", Style::Steps, outcome, |s| Some(s.in_flight as f64)),
    ];
    let limit = |s: &Second| (s.limit > 0).then_some(s.limit as f64);
    if outcome.series.iter().any(|second| second.limit > 0) {
        lines.push(scale.line("the gate's in-flight limit", Style::Steps, outcome, limit));
    }
    scale.plot_of(outcome, "Waiting and under way", "visitors, requests", lines)
}

fn responses(outcome: &Outcome, scale: &Scale) -> Plot {
    let longest = |s: &Second| response_mean(s).map(|_| s.response_max_ms);
    let lines = vec![
        scale.line("longest", Style::Steps, outcome, longest),
        scale.line("mean", Style::Steps, outcome, response_mean),
    ];
    let log_y = scale.log_response;
    Plot { log_y, ..scale.plot_of(outcome, "Response time", "milliseconds", lines) }
}

fn waits(outcome: &Outcome, scale: &Scale) -> Plot {
    let lines = vec![
        scale.line("longest", Style::Steps, outcome, |s| (s.waits > 0).then_some(s.wait_max_s)),
        scale.line("mean", Style::Steps, outcome, |s| (s.waits > 0).then_some(s.wait_mean_s)),
        scale.line("told, mean", Style::Points, outcome, |s| (s.told > 0).then_some(s.wait_told_s)),
    ];
    scale.plot_of(outcome, "Wait", "seconds", lines)
}

fn response_mean(second: &Second) -> Option<f64> {
    (second.served + second.given_up > 0).then_some(second.response_mean_ms)
}
