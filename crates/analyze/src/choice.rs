//! Which figure is the bottleneck's, if nobody says it.

use crate::figures::Series;
use crate::show::number;

/// A figure is near its maximum from this part of it on.
pub const NEAR: f64 = 0.9;
/// Figures whose standard deviation is less than this part of their maximum are constant for our purpose:
/// they are near their maximum all the time.
const LEAST_VARIATION: f64 = 0.05;
/// A percentage that never comes to this shows no bottleneck while another does.
const BUSY_PERCENT: f64 = 50.0;

/// What was chosen and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub series: usize,
    pub why: String,
}

/// Names of figures that say how busy something is.
const BUSY: [&str; 6] = ["%busy", "busy", "%util", "util", "cpu", "load"];
/// Names of figures that are large when there is no load, or that no request changes.
const NOT_BUSY: [&str; 14] = [
    "idle", "free", "avail", "nice", "steal", "guest", "interval", "uptime", "cached", "buffers", "inact",
    "nodename", "number", "plist",
];

/// The figure that somebody named: its whole name, or the part before `:` where that is enough to tell it
/// from the others (`:all` counts before single items).
///
/// # Errors
/// There is no such figure, or there are several.
pub fn named(all: &[Series], name: &str) -> Result<Choice, String> {
    let chosen = |series| Ok(Choice { series, why: "named by --figure".into() });
    let position = |name: &str| all.iter().position(|series| series.name == name);
    if let Some(series) = position(name).or_else(|| position(&format!("{name}:all"))) {
        return chosen(series);
    }
    let begin = |series: &&Series| series.name.split([':', '{']).next() == Some(name);
    let list = |found: &[&Series]| {
        let mut names: Vec<_> = found.iter().take(40).map(|series| series.name.as_str()).collect();
        if found.len() > names.len() {
            names.push("...");
        }
        names.join(", ")
    };
    let several: Vec<&Series> = all.iter().filter(begin).collect();
    match several.as_slice() {
        [one] => chosen(position(&one.name).unwrap_or_default()),
        [] => {
            let all: Vec<&Series> = all.iter().collect();
            Err(format!("--figure: no figure `{name}`; there are: {}", list(&all)))
        }
        several => Err(format!("--figure: `{name}` is several figures, name one of them: {}", list(several))),
    }
}

struct Candidate {
    series: usize,
    near: f64,
    most: f64,
    is_busy: bool,
    is_percent: bool,
}

/// The figure that is near its maximum for the largest share of its samples, among those that say how busy
/// something is; if there are none, among all. `None`: none varies.
pub fn best(all: &[Series]) -> Option<Choice> {
    let mut candidates: Vec<Candidate> = all.iter().enumerate().filter_map(candidate).collect();
    if candidates.iter().any(|candidate| candidate.is_busy) {
        candidates.retain(|candidate| candidate.is_busy);
    }
    let is_loaded = |candidate: &Candidate| candidate.is_percent && candidate.most >= BUSY_PERCENT;
    if candidates.iter().any(is_loaded) {
        candidates.retain(is_loaded);
    }
    let count = candidates.len();
    // Of equals the first: sysstat names all CPUs together before single ones.
    let best = candidates.into_iter().reduce(|best, next| if next.near > best.near { next } else { best })?;
    let why = format!(
        "within {:.0} % of its maximum ({}) in {:.0} % of its samples, the most of {count} that may be the \
         bottleneck's; --figure takes another",
        (1.0 - NEAR) * 100.0,
        number(best.most),
        best.near * 100.0,
    );
    Some(Choice { series: best.series, why })
}

fn candidate((at, series): (usize, &Series)) -> Option<Candidate> {
    let name = series.name.to_lowercase();
    let values = || series.points.iter().map(|point| point.1);
    let count = series.points.len() as f64;
    let mean = values().sum::<f64>() / count;
    let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    if NOT_BUSY.iter().any(|word| name.contains(word)) || most <= 0.0 || deviation < LEAST_VARIATION * most {
        return None;
    }
    let near = values().filter(|value| *value >= NEAR * most).count() as f64 / count;
    let is_busy = BUSY.iter().any(|word| name.contains(word));
    let is_percent = ["%", "util", "percent", "pct", "busy"].iter().any(|word| name.contains(word));
    Some(Candidate { series: at, near, most, is_busy, is_percent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[f64]) -> Series {
        Series { name: name.into(), points: (0..).zip(values.iter().copied()).collect() }
    }

    #[test]
    fn the_figure_that_is_busy_most_of_the_time() {
        let all = [
            series("%idle:all", &[60.0, 2.0, 1.0, 1.0]),
            series("%memused", &[45.0, 45.1, 45.0, 45.1]),
            series("%util:vda", &[1.0, 2.0, 2.0, 2.0]),
            series("cswch/s", &[10.0, 90.0, 91.0, 92.0]),
            series("%busy:all", &[40.0, 98.0, 99.0, 20.0]),
            series("%busy:0", &[40.0, 98.0, 99.0, 98.5]),
        ];
        let choice = best(&all).expect("a figure");
        assert_eq!(all[choice.series].name, "%busy:0");
        assert!(choice.why.contains("75 %") && choice.why.contains("of 2"), "{}", choice.why);
        assert_eq!(all[best(&all[..4]).expect("a figure").series].name, "%util:vda");
        assert_eq!(best(&all[3..4]).expect("the only one").series, 0);
        assert_eq!(best(&all[..2]), None);
    }

    #[test]
    fn figures_by_name() {
        let all = [
            series("%user:0", &[1.0]),
            series("%user:all", &[1.0]),
            series("tps:vda", &[1.0]),
            series("await:vda", &[1.0]),
            series("await:vdb", &[1.0]),
        ];
        let at = |name| named(&all, name).map(|choice| choice.series);
        assert_eq!((at("%user"), at("%user:0"), at("tps")), (Ok(1), Ok(0), Ok(2)));
        let several = at("await").expect_err("two");
        assert!(several.contains("await:vda, await:vdb"), "{several}");
        assert!(at("cpu").expect_err("none").contains("%user:0, %user:all, tps:vda"));
    }
}
