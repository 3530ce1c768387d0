//! Figures as SVG: lines, steps or points over linear or logarithmic axes.
//!
//! Only plotters' SVG backend is used, and no text is measured with a font: no system library has a say, and
//! the same data give the same bytes on every machine. Layout, ticks and legend are done here, because
//! plotters' own charts guess the width of labels and put the legend upon the data. The backend knows whole
//! pixels only; it is given tenths of them, and the document scales them down, so that slopes are smooth.

use plotters::prelude::*;

mod axis;
mod canvas;
mod layout;
mod theme;
mod trace;

#[cfg(test)]
mod tests;

use axis::Axis;
use canvas::{Anchor, Canvas};
use layout::Layout;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Line,
    /// A value holds until the next point, the last one as long as the one before: counts per second, levels.
    Steps,
    Points,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name, for the legend; empty: not in the legend.
    pub name: String,
    /// (x, y), x ascending. A point that is not finite, or not positive on a logarithmic axis, is a gap.
    pub points: Vec<(f64, f64)>,
    pub style: Style,
}

/// A figure.
///
/// ```
/// use tidegate_lab::plot::{Line, Plot};
///
/// let points = vec![(0.0, 1.0), (1.0, 3.0)];
/// let plot = Plot {
///     title: "Goodput".into(),
///     lines: vec![Line { name: "measured".into(), points, ..Line::default() }],
///     ..Plot::default()
/// };
/// assert!(plot.svg(640, 320).starts_with("<svg "));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub log_x: bool,
    pub log_y: bool,
    pub lines: Vec<Line>,
    /// Horizontal lines of reference: label, and at which y.
    pub h_lines: Vec<(String, f64)>,
}

impl Plot {
    /// The figure as a stand-alone SVG document, `width` by `height` CSS pixels, at least 160 by 120. Its
    /// background is transparent; its colours follow the reader's preference for light or dark.
    pub fn svg(&self, width: u32, height: u32) -> String {
        self.document(width, height, &[], true)
    }

    /// The figure without its style sheet, for a page that holds several and [`STYLE`] once; on axes that fit
    /// `others` too, so that figures side by side can be compared by eye.
    pub(crate) fn svg_among(&self, width: u32, height: u32, others: &[&Plot]) -> String {
        self.document(width, height, others, false)
    }

    fn document(&self, width: u32, height: u32, others: &[&Plot], alone: bool) -> String {
        let (width, height) = (width.max(160), height.max(120));
        let all: Vec<&Plot> = std::iter::once(self).chain(others.iter().copied()).collect();
        let x = Axis::over(self.log_x, false, all.iter().flat_map(|plot| plot.xs()));
        let y = Axis::over(self.log_y, true, all.iter().flat_map(|plot| plot.ys()));
        let layout = Layout::new(self, &y, f64::from(width), f64::from(height));
        let mut out = String::new();
        let mut canvas = Canvas::new(&mut out, width, height);
        self.draw_axes(&mut canvas, &layout, &x, &y);
        self.draw_references(&mut canvas, &layout, &y);
        let mut any = false;
        for (k, line) in self.lines.iter().enumerate() {
            any |= draw_line(&mut canvas, &layout, (&x, &y), line, k);
        }
        if !any {
            let middle = ((layout.left + layout.right) / 2.0, (layout.top + layout.bottom) / 2.0);
            canvas.text("no data", middle, 12.0, theme::MUTED, Anchor::Centre);
        }
        self.draw_legend(&mut canvas, &layout);
        canvas.finish();
        theme::dress(&out, width, height, &self.description(), alone)
    }

    fn xs(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| {
            let hold = (line.style == Style::Steps).then(|| trace::held_until(&line.points)).flatten();
            line.points.iter().filter(|point| point.1.is_finite()).map(|point| point.0).chain(hold)
        })
    }

    fn ys(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        points.chain(self.h_lines.iter().map(|(_, y)| *y))
    }

    fn draw_axes(&self, canvas: &mut Canvas, layout: &Layout, x: &Axis, y: &Axis) {
        for at in y.minor() {
            canvas.line(&layout.across(y.place(at)), theme::FAINT, 0.5);
        }
        for (at, label) in y.ticks() {
            let [from, to] = layout.across(y.place(*at));
            canvas.line(&[from, to], theme::GRID, 0.8);
            canvas.text(label, (from.0 - 7.0, from.1), layout::TICK_SIZE, theme::MUTED, Anchor::Right);
        }
        for (at, label) in layout.thin(x) {
            let foot = (layout.x(x.place(at)), layout.bottom);
            canvas.line(&[foot, (foot.0, foot.1 + 4.0)], theme::INK, 1.0);
            canvas.text(label, (foot.0, foot.1 + 7.0), layout::TICK_SIZE, theme::MUTED, Anchor::Top);
        }
        canvas.line(&[(layout.left, layout.bottom), (layout.right, layout.bottom)], theme::INK, 1.0);
        let middle = (layout.left + layout.right) / 2.0;
        let foot = (middle, layout.bottom + 23.0);
        canvas.text(&self.x_label, foot, layout::LABEL_SIZE, theme::INK, Anchor::Top);
        let side = (10.0, (layout.top + layout.bottom) / 2.0);
        canvas.text_upwards(&self.y_label, side, layout::LABEL_SIZE, theme::INK);
        canvas.title(&self.title, (layout.left, layout::TITLE_MIDDLE), layout::TITLE_SIZE, theme::INK);
    }

    /// Lines of reference, their labels beside the plot, where no data are.
    fn draw_references(&self, canvas: &mut Canvas, layout: &Layout, y: &Axis) {
        let mut lines: Vec<_> = self.h_lines.iter().filter(|(_, at)| y.shows(*at)).collect();
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        let at: Vec<f64> = lines.iter().map(|(_, at)| layout.y(y.place(*at))).collect();
        let beside = layout.apart(&at);
        for (((label, _), at), beside) in lines.into_iter().zip(at).zip(beside) {
            canvas.line(&[(layout.left, at), (layout.right, at)], theme::MUTED, 1.2);
            let place = (layout.right + 6.0, beside);
            canvas.text(label, place, layout::TICK_SIZE, theme::INK, Anchor::Left);
        }
    }

    fn draw_legend(&self, canvas: &mut Canvas, layout: &Layout) {
        for (k, at) in &layout.legend {
            let line = &self.lines[*k];
            let from = (at.0, at.1);
            match line.style {
                Style::Points => canvas.marker((at.0 + layout::SWATCH / 2.0, at.1), *k),
                Style::Line | Style::Steps => {
                    canvas.line(&[from, (at.0 + layout::SWATCH, at.1)], theme::series(*k), 2.2);
                }
            }
            let name = (at.0 + layout::SWATCH + 6.0, at.1);
            canvas.text(&line.name, name, layout::LABEL_SIZE, theme::INK, Anchor::Left);
        }
    }

    /// In words, for who cannot see it: what is drawn, and each line's range.
    fn description(&self) -> String {
        let mut text = format!("{}: {} over {}", self.title, self.y_label, self.x_label);
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let ys = || line.points.iter().map(|point| point.1).filter(|y| y.is_finite());
            let (least, most) = (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
            text += &if least <= most {
                format!("; {} from {} to {}", line.name, axis::figure(least), axis::figure(most))
            } else {
                format!("; {}: no data", line.name)
            };
        }
        text
    }
}

/// Whether anything of it could be drawn.
fn draw_line(canvas: &mut Canvas, layout: &Layout, axes: (&Axis, &Axis), line: &Line, k: usize) -> bool {
    let place = |point: (f64, f64)| {
        let shown = axes.0.shows(point.0) && axes.1.shows(point.1);
        shown.then(|| (layout.x(axes.0.place(point.0)), layout.y(axes.1.place(point.1))))
    };
    if line.style == Style::Points {
        let dots = trace::dots(line.points.iter().filter_map(|point| place(*point)));
        dots.iter().for_each(|dot| canvas.marker(*dot, k));
        return !dots.is_empty();
    }
    let steps = (line.style == Style::Steps).then(|| trace::steps(&line.points));
    let points = steps.as_deref().unwrap_or(&line.points);
    let strokes = trace::strokes(points.iter().map(|point| place(*point)));
    for stroke in &strokes {
        match stroke.as_slice() {
            [alone] => canvas.marker(*alone, k),
            stroke => canvas.line(stroke, theme::series(k), 1.6),
        }
    }
    !strokes.is_empty()
}

/// The style sheet of figures within a page; see [`Plot::svg`].
pub(crate) use theme::STYLE;

type Colour = RGBColor;
