//! The `Date` of answers (RFC 9110 6.6.1), written once a second and thread.

use std::cell::RefCell;

use http::HeaderValue;
use tidegate_core::units::Timestamp;

thread_local! {
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// `now` as `Date` writes it; `None` beyond the year 9999.
pub fn date(now: Timestamp) -> Option<HeaderValue> {
    let second = now.as_micros() / 1_000_000;
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|(of, _)| *of != second) {
            *last = Some((second, written(second)?));
        }
        last.as_ref().map(|(_, value)| value.clone())
    })
}

fn written(second: u64) -> Option<HeaderValue> {
    let time = jiff::Timestamp::from_second(second.try_into().ok()?).ok()?;
    let mut text = String::with_capacity(29);
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    printer.print_timestamp_rfc9110(&time, &mut text).ok()?;
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_rfc_9110() {
        for (second, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
        ] {
            let at = Timestamp::from_micros(second * 1_000_000 + 999_999);
            assert_eq!(date(at).unwrap(), text);
        }
    }
}
