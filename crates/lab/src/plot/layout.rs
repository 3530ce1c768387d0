//! Lays out the parts of a figure. The legend is above the data, labels of reference lines one beside them:
//! nothing ever lies upon the data.

use super::Plot;
use super::axis::Axis;

pub(super) const TITLE_SIZE: f64 = 13.5;
pub(super) const TITLE_MIDDLE: f64 = 13.0;
pub(super) const LABEL_SIZE: f64 = 11.5;
pub(super) const TICK_SIZE: f64 = 11.0;
pub(super) const SWATCH: f64 = 20.0;
const LEGEND_LINE: f64 = 17.0;
/// Width of a character over its height: no font is measured, so this is what common sans-serif fonts need at
/// most in running text.
const CHAR_WIDTH: f64 = 0.58;

/// Which line of the plot a legend's entry is for, and the left end of its stroke.
type Entry = (usize, (f64, f64));

/// Positions in CSS pixels from the upper left.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub legend: Vec<Entry>,
}

impl Layout {
    pub fn new(plot: &Plot, y: &Axis, width: f64, height: f64) -> Self {
        let widest = |labels: &mut dyn Iterator<Item = &String>| {
            labels.map(|label| text_width(label, TICK_SIZE)).fold(0.0, f64::max)
        };
        let y_label = if plot.y_label.is_empty() { 0.0 } else { LABEL_SIZE + 6.0 };
        let ticks = widest(&mut y.ticks().iter().map(|(_, label)| label));
        let left = (y_label + ticks + 12.0).min(width / 3.0);
        let beside = widest(&mut plot.h_lines.iter().map(|(label, _)| label));
        // Labels too long for a third of the figure are cut by its edge rather than leave no room for the
        // data.
        let right = width - (beside + 12.0).max(16.0).min(width / 3.0);
        let title = if plot.title.is_empty() { 6.0 } else { TITLE_MIDDLE + TITLE_SIZE };
        let (legend, rows) = legend(plot, (left, width - 8.0), title);
        let top = title + rows as f64 * LEGEND_LINE + 4.0;
        let foot = if plot.x_label.is_empty() { 24.0 } else { 42.0 };
        // A legend of very many lines pushes the plot together, not upside down.
        Self { left, right, top: top.min(height - foot - 20.0), bottom: height - foot, legend }
    }

    /// From a position on the axis (0 to 1) to pixels.
    pub fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    /// From a position on the axis (0 to 1) to pixels.
    pub fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }

    pub fn across(&self, place: f64) -> [(f64, f64); 2] {
        let y = self.y(place);
        [(self.left, y), (self.right, y)]
    }

    /// Places for labels, from the uppermost down, near `at` but not upon each other, nor below the plot if
    /// it can be helped.
    pub fn apart(&self, at: &[f64]) -> Vec<f64> {
        let line = TICK_SIZE + 2.0;
        let mut places: Vec<f64> = Vec::with_capacity(at.len());
        for at in at {
            places.push(places.last().map_or(*at, |above| at.max(above + line)));
        }
        let mut floor = self.bottom;
        for place in places.iter_mut().rev() {
            *place = place.min(floor);
            floor = *place - line;
        }
        places
    }

    /// The ticks of an x axis that can be labelled without touching each other.
    pub fn thin<'a>(&self, x: &'a Axis) -> impl Iterator<Item = (f64, &'a str)> {
        let mut free_from = f64::NEG_INFINITY;
        x.ticks().iter().filter_map(move |(at, label)| {
            let (middle, half) = (self.x(x.place(*at)), text_width(label, TICK_SIZE) / 2.0);
            (middle - half >= free_from).then(|| {
                free_from = middle + half + 6.0;
                (*at, label.as_str())
            })
        })
    }
}

/// Names side by side, in as many rows as it takes.
fn legend(plot: &Plot, (left, right): (f64, f64), top: f64) -> (Vec<Entry>, usize) {
    let mut places = Vec::new();
    let (mut x, mut row) = (left, 0);
    for (k, line) in plot.lines.iter().enumerate().filter(|(_, line)| !line.name.is_empty()) {
        let width = SWATCH + 6.0 + text_width(&line.name, LABEL_SIZE) + 16.0;
        if x > left && x + width - 16.0 > right {
            (x, row) = (left, row + 1);
        }
        places.push((k, (x, top + (row as f64 + 0.5) * LEGEND_LINE)));
        x += width;
    }
    let rows = if places.is_empty() { 0 } else { row + 1 };
    (places, rows)
}

fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH * size
}
