//! Colours, and the document around what plotters draws.
//!
//! Every colour is drawn as its light value; a style sheet maps it to the dark one. A reader that knows no
//! style sheets still gets a figure for white paper. The colours of lines are Okabe and Ito's, which people
//! of any colour vision tell apart, the paler ones darkened to 3:1 against white (WCAG 2.2, 1.4.11); from the
//! seventh line on they come again, dashed.

use std::fmt::Write as _;

use super::Colour;
use crate::escape::escape;
use plotters::style::RGBColor;

/// Tenths of a pixel: what is drawn is scaled down by this.
pub(super) const FINE: u32 = 10;

pub(super) const INK: Colour = RGBColor(0x1F, 0x23, 0x28);
pub(super) const MUTED: Colour = RGBColor(0x57, 0x60, 0x6A);
pub(super) const GRID: Colour = RGBColor(0xD8, 0xDE, 0xE4);
pub(super) const FAINT: Colour = RGBColor(0xEA, 0xEE, 0xF2);

/// Blue, vermilion, bluish green, reddish purple, ochre, grey.
const SERIES: [Colour; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xA9, 0x4F, 0x88),
    RGBColor(0xB0, 0x7A, 0x00),
    RGBColor(0x6E, 0x77, 0x81),
];

/// The rules of every figure. Strokes in the muted colour are lines of reference: dashed. The second set of
/// colours differs in its last bit, so that the rules tell it apart.
pub(crate) const STYLE: &str = "\
.plot{font-family:system-ui,sans-serif}\
.plot text{font-family:inherit}\
.plot polyline{stroke-linejoin:round;stroke-linecap:round}\
.plot [stroke=\"#57606A\"]{stroke-dasharray:60 40}\
.plot [stroke=\"#0072B3\"],.plot [stroke=\"#D55E01\"],.plot [stroke=\"#009E72\"],.plot [stroke=\"#A94F89\"],\
.plot [stroke=\"#B07A01\"],.plot [stroke=\"#6E7780\"]{stroke-dasharray:60 35;stroke-linecap:butt}\
@media (prefers-color-scheme:dark){\
.plot [fill=\"#1F2328\"]{fill:#E6EDF3}.plot [stroke=\"#1F2328\"]{stroke:#E6EDF3}\
.plot [fill=\"#57606A\"]{fill:#A5AFB9}.plot [stroke=\"#57606A\"]{stroke:#A5AFB9}\
.plot [stroke=\"#D8DEE4\"]{stroke:#343B44}.plot [stroke=\"#EAEEF2\"]{stroke:#262C33}\
.plot [stroke^=\"#0072B\"]{stroke:#56B4E9}.plot [fill^=\"#0072B\"]{fill:#56B4E9}\
.plot [stroke^=\"#D55E0\"]{stroke:#FF8F45}.plot [fill^=\"#D55E0\"]{fill:#FF8F45}\
.plot [stroke^=\"#009E7\"]{stroke:#2FCB9B}.plot [fill^=\"#009E7\"]{fill:#2FCB9B}\
.plot [stroke^=\"#A94F8\"]{stroke:#E29BC8}.plot [fill^=\"#A94F8\"]{fill:#E29BC8}\
.plot [stroke^=\"#B07A0\"]{stroke:#E6B23C}.plot [fill^=\"#B07A0\"]{fill:#E6B23C}\
.plot [stroke^=\"#6E778\"]{stroke:#B4BCC5}.plot [fill^=\"#6E778\"]{fill:#B4BCC5}\
}";

pub(super) fn series(k: usize) -> Colour {
    let RGBColor(red, green, blue) = SERIES[k % SERIES.len()];
    let second = (k / SERIES.len() % 2) as u8;
    RGBColor(red, green, blue ^ second)
}

/// Puts the document around `drawn`: its size, its name for who cannot see it, and, `alone`, its style sheet.
pub(super) fn dress(drawn: &str, width: u32, height: u32, description: &str, alone: bool) -> String {
    let body = drawn.split_once('>').map_or("", |(_, body)| body.trim_start());
    let mut out = String::with_capacity(drawn.len() + 2048);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        width * FINE,
        height * FINE,
        escape(description),
    );
    if alone {
        let _ = writeln!(out, "<style>{STYLE}</style>");
    }
    out + body
}
