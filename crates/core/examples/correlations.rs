//! Writes 1,000 random tables and what the core finds in them, a JSON object a line, for
//! `scripts/compare-scipy.py`, which has SciPy compute the same.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::correlate::{Settings, analyse, pearson};

const TABLES: u64 = 1_000;

fn main() {
    for seed in 0..TABLES {
        println!("{}", table(&mut StdRng::seed_from_u64(seed)));
    }
}

/// A table of a random shape: short and long, related and unrelated, with offsets, constants and gaps.
fn table(random: &mut StdRng) -> String {
    let intervals = match random.random_range(0..4) {
        0 => random.random_range(0..12),
        3 => random.random_range(300..3_000),
        _ => random.random_range(12..300),
    };
    let types = random.random_range(1..12);
    let offset = [0.0, 1.0, 1e4, -1e6][random.random_range(0..4)];
    let noise = 10.0_f64.powf(random.random_range(-4.0..3.0));
    let has_gaps = random.random_bool(0.3);
    let mut figure: Vec<f64> =
        (0..intervals).map(|_| offset + noise * random.random_range(-1.0..1.0)).collect();
    let mut counts: Vec<Vec<f64>> = Vec::new();
    for _ in 0..types {
        let mean = random.random_range(0.2..50.0_f64);
        // A type that travels with another one, a constant one, or one of its own.
        let like =
            (!counts.is_empty() && random.random_bool(0.3)).then(|| random.random_range(0..counts.len()));
        let is_constant = like.is_none() && random.random_bool(0.05);
        let column: Vec<f64> = (0..intervals)
            .map(|t| {
                let others = like.map_or(0.0, |like: usize| counts[like][t]);
                let own = if is_constant { mean } else { mean * 2.0 * random.random::<f64>() };
                (own + others).round()
            })
            .collect();
        let cost = [0.0, 0.0, 1.0, -0.5][random.random_range(0..4)];
        figure.iter_mut().zip(&column).for_each(|(figure, count)| *figure += cost * count);
        counts.push(column);
    }
    if has_gaps {
        figure.iter_mut().filter(|_| random.random_bool(0.1)).for_each(|figure| *figure = f64::NAN);
    }

    let findings = analyse(&counts, &figure, &Settings::default());
    let list = |values: Vec<String>| format!("[{}]", values.join(","));
    let numbers = |values: &[f64]| list(values.iter().map(|value| number(*value)).collect());
    let pairs = counts.iter().map(|of_type| match pearson(of_type, &figure) {
        Some(found) => format!("[{},{},{}]", number(found.r), number(found.p), found.n),
        None => "null".into(),
    });
    format!(
        r#"{{"figure":{},"counts":{},"pearson":{},"significant":{},"costs":{}}}"#,
        numbers(&figure),
        list(counts.iter().map(|of_type| numbers(of_type)).collect()),
        list(pairs.collect()),
        list(findings.iter().map(|finding| finding.is_significant.to_string()).collect()),
        list(
            findings.iter().map(|f| f.cost.map_or("null".into(), |cost| number(cost.per_request))).collect()
        ),
    )
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:e}") } else { "null".into() }
}
