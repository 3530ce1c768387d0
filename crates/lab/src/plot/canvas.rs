//! Shapes to draw, in CSS pixels, handed to plotters' SVG backend in tenths of them.

use plotters::backend::DrawingBackend;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::FINE;
use super::{Colour, theme};

/// The backend divides font sizes by this.
const FONT_SCALE: f64 = 1.24;
/// Radius of a point's marker, in pixels.
const RADIUS: f64 = 2.4;

/// Which point of a text lies at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Left,
    Right,
    Centre,
    /// The middle of its upper edge.
    Top,
}

/// The backend. Writing to a string cannot fail, so that its results say nothing.
pub(super) struct Canvas<'a>(SVGBackend<'a>);

impl<'a> Canvas<'a> {
    pub fn new(out: &'a mut String, width: u32, height: u32) -> Self {
        Self(SVGBackend::with_string(out, (width * FINE, height * FINE)))
    }

    pub fn line(&mut self, through: &[(f64, f64)], colour: Colour, width: f64) {
        if through.len() > 1 {
            let _ = self.0.draw_path(through.iter().copied().map(fine), &stroke(colour, width));
        }
    }

    /// A point of the `k`th line: full or hollow by turns, so that neighbours differ in more than colour.
    pub fn marker(&mut self, at: (f64, f64), k: usize) {
        let radius = (RADIUS * f64::from(FINE)) as u32;
        let full = k.is_multiple_of(2);
        let _ = self.0.draw_circle(fine(at), radius, &stroke(theme::series(k), 1.4), full);
    }

    pub fn text(&mut self, text: &str, at: (f64, f64), size: f64, colour: Colour, anchor: Anchor) {
        let pos = match anchor {
            Anchor::Left => Pos::new(HPos::Left, VPos::Center),
            Anchor::Right => Pos::new(HPos::Right, VPos::Center),
            Anchor::Centre => Pos::new(HPos::Center, VPos::Center),
            Anchor::Top => Pos::new(HPos::Center, VPos::Top),
        };
        self.put(text, at, font(size).color(&colour).pos(pos));
    }

    /// A text in bold, to the right of its position.
    pub fn title(&mut self, text: &str, at: (f64, f64), size: f64, colour: Colour) {
        let style = font(size).style(FontStyle::Bold).color(&colour);
        self.put(text, at, style.pos(Pos::new(HPos::Left, VPos::Center)));
    }

    /// A text that runs from bottom to top, centred.
    pub fn text_upwards(&mut self, text: &str, at: (f64, f64), size: f64, colour: Colour) {
        let style = font(size).transform(FontTransform::Rotate270).color(&colour);
        self.put(text, at, style.pos(Pos::new(HPos::Center, VPos::Center)));
    }

    pub fn finish(mut self) {
        let _ = self.0.present();
    }

    fn put(&mut self, text: &str, at: (f64, f64), style: TextStyle) {
        if !text.is_empty() {
            let _ = self.0.draw_text(text, &style, fine(at));
        }
    }
}

fn fine(at: (f64, f64)) -> (i32, i32) {
    let scale = f64::from(FINE);
    ((at.0 * scale).round() as i32, (at.1 * scale).round() as i32)
}

fn stroke(colour: Colour, width: f64) -> ShapeStyle {
    ShapeStyle {
        color: colour.to_rgba(),
        filled: false,
        stroke_width: (width * f64::from(FINE)).round() as u32,
    }
}

fn font(size: f64) -> FontDesc<'static> {
    FontDesc::new(FontFamily::SansSerif, size * f64::from(FINE) * FONT_SCALE, FontStyle::Normal)
}
