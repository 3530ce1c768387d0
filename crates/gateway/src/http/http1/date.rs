//! The `Date` of responses that have none (RFC 9110 6.6.1), formatted once a second and thread.

use std::cell::Cell;
use std::io::Write as _;

use http::HeaderValue;

use crate::base::clock;

/// `date: Tue, 24 Nov 2026 12:00:00 GMT` and CRLF.
const LINE: usize = 37;

thread_local! {
    static PRESENT: Cell<(u64, [u8; LINE])> = const { Cell::new((u64::MAX, [0; LINE])) };
}

/// The line for now.
pub(crate) fn line() -> [u8; LINE] {
    let now_s = clock::coarse_unix_s();
    let (at_s, line) = PRESENT.get();
    if at_s == now_s {
        return line;
    }
    let line = format(now_s);
    PRESENT.set((now_s, line));
    line
}

/// The value of the field for now.
pub(crate) fn value() -> HeaderValue {
    let line = line();
    HeaderValue::from_bytes(&line["date: ".len()..LINE - 2]).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn format(unix_s: u64) -> [u8; LINE] {
    let at = i64::try_from(unix_s).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    let text = at.unwrap_or_default().strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n");
    let mut line = [0; LINE];
    // Years have four digits until the end of what a timestamp can say.
    match write!(&mut line[..], "{text}") {
        Ok(()) => line,
        Err(_) => *b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_an_imf_fixdate() {
        assert_eq!(&super::format(784_111_777), b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!(&super::format(0), b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(super::line(), super::line());
    }
}
