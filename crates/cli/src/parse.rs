//! Values of options.

use tidegate_settings::kind::{Leaf as _, Size};
use tidegate_settings::tree::Value;

/// Largest seed of a scenario. A scenario's integers are TOML's, which have 64 bits with a sign.
pub const MAX_SEED: u64 = i64::MAX as u64;

/// A key and its value, as `--set` takes them.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// A share, as a number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(percent) if (1.0..=100.0).contains(&percent) => {
            Err(format!("expected a share from 0 to 1; write {} for {percent} %", percent / 100.0))
        }
        _ => Err("expected a share from 0 to 1".into()),
    }
}

/// Requests per second.
pub fn per_second(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1e6).contains(rate));
    rate.ok_or_else(|| "expected requests per second, like 19 or 0.5".into())
}

/// Connection requests per second.
pub fn syns_per_second(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1e7).contains(rate));
    rate.ok_or_else(|| "expected SYNs per second, like 300 or 0.5; 0: no limit".into())
}

/// Bytes per second.
pub fn bandwidth(text: &str) -> Result<u64, String> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let bytes = Size { bounds: 1..=(1 << 53) - 1, zero: false };
    bytes.parse(&Value::Text(text.into())).map_err(|hint| {
        let hint = hint.map_or(String::new(), |hint| format!(". {hint}"));
        format!("expected bytes per second, like 125kB, 64KiB, 2MB or 125000{hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_rates_and_bandwidths_are_read_or_refused_with_a_reason() {
        assert_eq!((share("0.6"), share("1"), share("0")), (Ok(0.6), Ok(1.0), Ok(0.0)));
        assert_eq!(share("60"), Err("expected a share from 0 to 1; write 0.6 for 60 %".into()));
        assert!(share("-1").is_err() && share("NaN").is_err() && share("half").is_err());
        assert_eq!((per_second("19"), per_second("0.5")), (Ok(19.0), Ok(0.5)));
        assert!(per_second("-1").is_err() && per_second("inf").is_err());
        assert_eq!((syns_per_second("300"), syns_per_second("0")), (Ok(300.0), Ok(0.0)));
        assert!(syns_per_second("-1").is_err() && syns_per_second("inf").is_err());
        for (text, bytes) in
            [("125kB", 125_000), ("64KiB", 65_536), ("2MB", 2_000_000), ("1", 1), ("125kB/s", 125_000)]
        {
            assert_eq!(bandwidth(text), Ok(bytes), "{text}");
        }
        for wrong in ["0", "1.5MB", "fast", "", "125kb", "1Mbit"] {
            let why = bandwidth(wrong).expect_err(wrong);
            assert!(why.contains("125kB"), "{wrong}: {why}");
        }
    }
}
