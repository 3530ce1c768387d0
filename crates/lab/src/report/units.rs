//! Numbers for people: grouped, with their unit, in as many digits as they deserve.

/// A count, by thousands: `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate: `98.7 /s`; whole from 1,000 on.
pub(crate) fn per_second(rate: f64) -> String {
    if rate < 1000.0 { format!("{rate:.1} /s") } else { format!("{} /s", count(rate.round() as u64)) }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A share of which the last tenth matters: `99.9 %`, but 100 only of all.
pub(crate) fn fine_percent(share: f64) -> String {
    let shown = if share < 1.0 { (share * 1000.0).floor() / 10.0 } else { share * 100.0 };
    format!("{shown:.1} %")
}

/// Milliseconds, seconds from 1,000 on: `140 ms`, `2.3 s`.
pub(crate) fn millis(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { seconds(ms / 1000.0) }
}

/// Milliseconds of which the tenth matters below ten: `0.3 ms`.
pub(crate) fn fine_millis(ms: f64) -> String {
    if ms < 9.95 { format!("{ms:.1} ms") } else { millis(ms) }
}

pub(crate) fn seconds(s: f64) -> String {
    format!("{s:.1} s")
}

/// A length of time: `47.2 s`, `12 min 40 s`, `3 h 5 min`.
pub(crate) fn span(s: f64) -> String {
    let whole = s.round() as u64;
    match whole {
        0..120 => seconds(s),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A figure with three significant digits, or a dash.
pub(crate) fn cell(figure: Option<f64>) -> String {
    let Some(figure) = figure else { return "-".into() };
    if figure == 0.0 {
        return "0".into();
    }
    let before_point = figure.abs().log10().floor() as i32 + 1;
    let decimals = (3 - before_point).clamp(0, 6) as usize;
    let text = format!("{figure:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (n, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), expected);
        }
    }

    #[test]
    fn units_are_chosen_by_size() {
        for (shown, expected) in [
            (millis(140.4), "140 ms"),
            (millis(2345.0), "2.3 s"),
            (fine_millis(0.25), "0.2 ms"),
            (fine_millis(9.96), "10 ms"),
            (per_second(98.76), "98.8 /s"),
            (per_second(12_345.6), "12,346 /s"),
            (span(47.15), "47.1 s"),
            (span(760.0), "12 min 40 s"),
            (span(11_100.0), "3 h 5 min"),
            (fine_percent(1.0), "100.0 %"),
            (fine_percent(0.99999), "99.9 %"),
        ] {
            assert_eq!(shown, expected);
        }
    }
}
