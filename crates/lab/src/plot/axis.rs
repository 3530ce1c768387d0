//! One axis: its range, its ticks, and where a value lies.

const TICKS: f64 = 5.0;
/// Beyond this, even with a unit, a number is written with a power of ten.
const TOO_LONG: f64 = 1e13;
/// Decades of a logarithmic axis at most: what is further below the top is no longer shown.
const MAX_DECADES: i32 = 12;

/// A range of values and how they are spread over it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    log: bool,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Over these values. `round`: ends at ticks, and begins at 0 if nothing is below; else ends where the
    /// values do.
    pub fn over(log: bool, round: bool, values: impl Iterator<Item = f64>) -> Self {
        let fit = values.filter(|value| can_show(log, *value));
        let (least, most) =
            fit.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| (least.min(v), most.max(v)));
        match (least <= most, log) {
            (false, true) => Self::logarithmic(1.0, 10.0),
            (false, false) => Self::linear(0.0, 1.0, round),
            (true, true) => Self::logarithmic(least, most),
            (true, false) => Self::linear(least, most, round),
        }
    }

    fn linear(least: f64, most: f64, round: bool) -> Self {
        let from = if round { least.min(0.0) } else { least };
        let to = if round { most.max(0.0) } else { most };
        let wide = to - from > f64::MIN_POSITIVE;
        // A single value: enough room to distinguish it from its neighbours.
        let to = if wide { to } else { from + (from.abs() * 0.1).max(1.0) };
        let step = step((to - from) / TICKS);
        let (first, last) = if round {
            ((from / step).floor(), (to / step).ceil())
        } else {
            ((from / step).ceil(), (to / step).floor())
        };
        let (from, to) = if round { (first * step, last * step) } else { (from, to) };
        let unit = Unit::of(from.abs().max(to.abs()));
        let count = (last - first).clamp(0.0, 100.0) as usize;
        let ticks =
            (0..=count).map(|k| (first + k as f64) * step).map(|at| (at, unit.label(at, step))).collect();
        Self { log: false, from, to, ticks }
    }

    fn logarithmic(least: f64, most: f64) -> Self {
        let top = fitting(most, true);
        let floor = 10_f64.powi(top.log10().ceil() as i32 - MAX_DECADES);
        let bottom = fitting(least.max(floor), false);
        let (from, to) = if bottom < top { (bottom, top) } else { (bottom, bottom * 10.0) };
        let decades = (to / from).log10();
        let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((decades / 7.0).ceil() as i32).max(1);
        let (low, high) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let ticks = (low..=high)
            .filter(|exponent| exponent.rem_euclid(every) == 0)
            .flat_map(|exponent| factors.iter().map(move |factor| decade(*factor, exponent)))
            .filter(|at| (from * 0.999..=to * 1.001).contains(at))
            .map(|at| (at, figure(at)))
            .collect();
        Self { log: true, from, to, ticks }
    }

    /// Where `value` lies: 0 at the start, 1 at the end.
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        place.clamp(0.0, 1.0)
    }

    pub fn shows(&self, value: f64) -> bool {
        can_show(self.log, value)
    }

    pub fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Between the ticks of a logarithmic axis: the multiples of each decade, if they are not too many.
    pub fn minor(&self) -> Vec<f64> {
        if !self.log || (self.to / self.from).log10() > 5.0 {
            return Vec::new();
        }
        let exponents = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        exponents
            .flat_map(|exponent| (2..10).map(move |factor| decade(f64::from(factor), exponent)))
            .filter(|at| *at > self.from * 1.001 && *at < self.to * 0.999)
            .filter(|at| !self.ticks.iter().any(|(tick, _)| (tick / at - 1.0).abs() < 1e-6))
            .collect()
    }
}

/// Rounding up must not overflow, so that the largest numbers there are count as infinite.
fn can_show(log: bool, value: f64) -> bool {
    value.abs() < 1e300 && (!log || value > 1e-300)
}

/// 1, 2 or 5 times a power of ten: the next above `rough`.
fn step(rough: f64) -> f64 {
    fitting(rough.max(f64::MIN_POSITIVE * 1e10), true)
}

/// The nearest 1, 2 or 5 times a power of ten at or above `value`, or at or below it.
fn fitting(value: f64, above: bool) -> f64 {
    let exponent = value.log10().floor() as i32;
    let candidates = [1.0, 2.0, 5.0, 10.0].map(|factor| decade(factor, exponent));
    // A hair's breadth: 10^k computed from its own logarithm need not be k to the last bit.
    let fits = |c: &f64| if above { *c >= value * (1.0 - 1e-9) } else { *c <= value * (1.0 + 1e-9) };
    let found =
        if above { candidates.into_iter().find(fits) } else { candidates.into_iter().rev().find(fits) };
    found.unwrap_or(value)
}

/// `factor` × 10^`exponent`; by division below one, because a tenth has no exact form but one over ten is
/// rounded once.
fn decade(factor: f64, exponent: i32) -> f64 {
    if exponent < 0 { factor / 10_f64.powi(-exponent) } else { factor * 10_f64.powi(exponent) }
}

struct Unit(f64, &'static str);

impl Unit {
    fn of(most: f64) -> Self {
        match most {
            most if most >= 1e9 => Self(1e9, " G"),
            most if most >= 1e6 => Self(1e6, " M"),
            most if most >= 1e4 => Self(1e3, " k"),
            _ => Self(1.0, ""),
        }
    }

    fn label(&self, value: f64, step: f64) -> String {
        let decimals = -((step / self.0).log10() + 1e-9).floor();
        if value == 0.0 {
            return "0".into();
        }
        if decimals > 6.0 || value.abs() >= TOO_LONG {
            return power(value);
        }
        minus(format!("{:.*}{}", decimals.max(0.0) as usize, value / self.0, self.1))
    }
}

/// A number for people, in three digits or so.
pub(super) fn figure(value: f64) -> String {
    if value != 0.0 && (value.abs() < 1e-4 || value.abs() >= TOO_LONG) {
        return power(value);
    }
    let Unit(by, name) = Unit::of(value.abs());
    let scaled = value / by;
    let digits = if scaled == 0.0 { 0.0 } else { 2.0 - scaled.abs().log10().floor() };
    let text = format!("{scaled:.*}", digits.max(0.0) as usize);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    minus(format!("{text}{name}"))
}

/// Numbers that no unit shortens.
fn power(value: f64) -> String {
    let text = format!("{value:.2e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    minus(format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.')))
}

/// With a minus as wide as a plus, not a hyphen.
fn minus(number: String) -> String {
    match number.strip_prefix('-') {
        Some(rest) => format!("−{rest}"),
        None => number,
    }
}
