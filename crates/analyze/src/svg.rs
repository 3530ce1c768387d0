//! Plots within the report: lines over time, and dots. Their colours are the page's.

use std::fmt::Write as _;

use crate::show::{escape, number};

/// Size in CSS pixels; narrow windows scale it down.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 300.0;
/// Room for the axes: left, right, top, bottom.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 42.0;
/// More points than pixels cannot be seen: they are put together.
const MAX_POINTS: usize = 600;
const MAX_DOTS: usize = 2_000;
/// Ticks on an axis, about.
const TICKS: f64 = 5.0;
/// Characters of a title and a name in the legend.
const MAX_TITLE: usize = 68;
const MAX_NAME: usize = 28;

/// Names and points; a value that is NaN is a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub title: String,
    pub x: String,
    pub y: String,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// A plot of lines over x, which ascends evenly.
pub fn lines(plot: &Plot) -> String {
    draw(plot, |out, frame| {
        for (at, (_, points)) in plot.lines.iter().enumerate() {
            for stroke in thinned(points).split(|point| point.1.is_nan()).filter(|stroke| !stroke.is_empty())
            {
                let places: Vec<String> = stroke.iter().map(|point| frame.place(*point)).collect();
                let _ = writeln!(out, "<polyline class=\"s{}\" points=\"{}\"/>", at % 4, places.join(" "));
            }
        }
    })
}

/// A plot of dots.
pub fn scatter(plot: &Plot) -> String {
    draw(plot, |out, frame| {
        for (_, points) in &plot.lines {
            // A part of them, evenly, where there are too many.
            let every = points.len().div_ceil(MAX_DOTS).max(1);
            for point in points.iter().step_by(every).filter(|point| point.1.is_finite()) {
                let (x, y) = (frame.x(point.0), frame.y(point.1));
                let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
            }
        }
    })
}

/// Means of neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let known: Vec<f64> = part.iter().map(|point| point.1).filter(|y| !y.is_nan()).collect();
        (part[0].0, known.iter().sum::<f64>() / known.len() as f64)
    };
    points.chunks(every).map(mean).collect()
}

struct Frame {
    most: (f64, f64),
}

impl Frame {
    fn x(&self, x: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * x / self.most.0
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y / self.most.1).max(0.0)
    }

    fn place(&self, point: (f64, f64)) -> String {
        format!("{:.1},{:.1}", self.x(point.0), self.y(point.1))
    }
}

fn draw(plot: &Plot, data: impl FnOnce(&mut String, &Frame)) -> String {
    let points = || plot.lines.iter().flat_map(|line| &line.1).filter(|point| point.1.is_finite());
    let largest = |values: &mut dyn Iterator<Item = f64>| match values.fold(0.0, f64::max) {
        most if most > 0.0 => most,
        _ => 1.0,
    };
    let frame = Frame {
        most: (
            largest(&mut points().map(|point| point.0)),
            largest(&mut points().map(|point| point.1)) * 1.05,
        ),
    };
    let mut out = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: {} over {}\">\n",
        escape(&plot.title),
        escape(&plot.y),
        escape(&plot.x)
    );
    let _ =
        writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>", cut(&plot.title, MAX_TITLE));
    let names: Vec<&str> =
        plot.lines.iter().map(|line| line.0.as_str()).filter(|name| !name.is_empty()).collect();
    if names.len() > 1 {
        legend(&mut out, &names);
    }
    for at in ticks(frame.most.1) {
        let (y, right) = (frame.y(at), WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 7.0,
            y + 4.0,
            number(at)
        );
    }
    for at in ticks(frame.most.0) {
        let foot = HEIGHT - BOTTOM + 16.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{foot}\" text-anchor=\"middle\">{}</text>",
            frame.x(at),
            number(at)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 7.0,
        cut(&plot.x, MAX_TITLE)
    );
    data(&mut out, &frame);
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String, names: &[&str]) {
    let step = (WIDTH - LEFT - RIGHT) / names.len() as f64;
    // As many characters as fit beside each other, at seven pixels each.
    let room = (((step - 26.0) / 7.0) as usize).min(MAX_NAME);
    for (at, name) in names.iter().enumerate() {
        let x = LEFT + step * at as f64;
        let _ = writeln!(
            out,
            "<polyline class=\"s{}\" points=\"{x:.1},33 {:.1},33\"/><text x=\"{:.1}\" y=\"37\">{}</text>",
            at % 4,
            x + 16.0,
            x + 20.0,
            cut(name, room)
        );
    }
}

/// Multiples of 1, 2 or 5 from 0 to `most`.
fn ticks(most: f64) -> Vec<f64> {
    let raw = most / TICKS;
    let unit = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * unit)
        .into_iter()
        .find(|step| *step >= raw)
        .unwrap_or(raw);
    (0..).map(|at| f64::from(at) * step).take_while(|at| *at <= most).collect()
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return escape(text);
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    escape(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_break_the_line_and_many_points_are_put_together() {
        let points: Vec<_> =
            (0..10).map(|at| (f64::from(at), if at == 5 { f64::NAN } else { 1.0 })).collect();
        let plot =
            Plot { title: "<t>".into(), x: "x".into(), y: "y".into(), lines: vec![("a".into(), points)] };
        let svg = lines(&plot);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("&lt;t&gt;") && !svg.contains("<t>") && !svg.contains("NaN"));
        let many: Vec<_> = (0..100_000).map(|at| (f64::from(at), 1.0)).collect();
        assert!(thinned(&many).len() <= MAX_POINTS);
        let plot = Plot { lines: vec![(String::new(), many)], ..plot };
        assert!(scatter(&plot).matches("<circle").count() <= MAX_DOTS);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(105.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(5.2), [0.0, 2.0, 4.0]);
        assert_eq!(ticks(1.0).len(), 6);
    }

    #[test]
    fn no_data_are_no_error() {
        let plot = Plot { title: String::new(), x: String::new(), y: String::new(), lines: Vec::new() };
        assert!(!lines(&plot).contains("NaN") && !scatter(&plot).contains("inf"));
    }
}
