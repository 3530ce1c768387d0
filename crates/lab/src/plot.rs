//! Figures as SVG: lines, steps or points over linear or logarithmic axes.
//!
//! Only plotters' SVG backend is used, so that no system font and no raster library has a say: the same data give
//! the same bytes on every machine.

use plotters::prelude::*;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Points joined by straight lines.
    #[default]
    Line,
    /// A value holds until the next point: counts per second, levels.
    Steps,
    /// Points alone.
    Points,
}

/// One line of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name, for the legend.
    pub name: String,
    /// (x, y), x ascending. A point that is not finite, or not positive on a logarithmic axis, is a gap.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What x is, with its unit.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// Whether x is logarithmic.
    pub log_x: bool,
    /// Whether y is logarithmic.
    pub log_y: bool,
    /// The lines, in the legend's order.
    pub lines: Vec<Line>,
    /// Horizontal lines of reference: label, and at which y.
    pub h_lines: Vec<(String, f64)>,
}

impl Plot {
    /// The figure as a stand-alone SVG document, in CSS pixels.
    pub fn svg(&self, width: u32, height: u32) -> String {
        let mut out = String::new();
        {
            let area = SVGBackend::with_string(&mut out, (width, height)).into_drawing_area();
            let points = self.lines.iter().flat_map(|line| &line.points);
            let (x, y) = points.fold((1.0_f64, 1.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
            let place = |p: &(f64, f64)| {
                ((p.0 / x * f64::from(width)) as i32, ((1.0 - p.1 / y) * f64::from(height)) as i32)
            };
            for line in &self.lines {
                let path: Vec<_> = line.points.iter().map(place).collect();
                // Writing to a String cannot fail.
                let _ = area.draw(&PathElement::new(path, BLACK));
            }
            let _ = area.present();
        }
        out
    }
}
