//! `host ident user [time] "request" status bytes "referer" "user agent"`, also without the last two and with
//! a virtual host or other fields in front.

use std::borrow::Cow;

use super::time::Times;
use super::{NO_REQUEST, NO_TIME, Reason, Request, path_of_request};

pub(super) fn parse<'a>(line: &'a [u8], times: &mut Times) -> Result<Request<'a>, Reason> {
    // Brackets may also be part of an address or of a user's name: the first that hold a time are the time's.
    let (at_us, rest) = memchr::memchr_iter(b'[', line)
        .find_map(|at| {
            let rest = &line[at + 1..];
            let end = memchr::memchr(b']', &rest[..rest.len().min(64)])?;
            Some((times.clf(&rest[..end])?, &rest[end + 1..]))
        })
        .ok_or(NO_TIME)?;
    let request = rest.strip_prefix(b" \"").ok_or(NO_REQUEST)?;
    // A quote inside the request is escaped. A path ends before it: at the first blank.
    let request = &request[..memchr::memchr(b'"', request).ok_or(NO_REQUEST)?];
    let path = Cow::Borrowed(path_of_request(request)?);
    Ok(Request { at_us, path, class: None, kept_from_origin: false })
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn path(line: &str) -> Result<(i64, String), Reason> {
        let request = parse(line.as_bytes(), &mut Times::new(TimeZone::UTC))?;
        Ok((request.at_us, String::from_utf8_lossy(&request.path).into_owned()))
    }

    #[test]
    fn lines_of_servers() {
        const AT: i64 = 1_795_491_733_000_000;
        let time = "[24/Nov/2026:03:42:13 +0000]";
        let lines = [
            // Apache's common form, nginx's combined form, Debian's vhost_combined.
            (format!("::1 - frank {time} \"GET /a.php?x=1 HTTP/1.0\" 200 2326"), Ok((AT, "/a.php".into()))),
            (format!("1.2.3.4 - - {time} \"POST /b HTTP/2.0\" 200 5 \"-\" \"a [b]\""), Ok((AT, "/b".into()))),
            (
                format!("shop.example:443 1.2.3.4 - [me] {time} \"GET /c HTTP/1.1\" 200 5"),
                Ok((AT, "/c".into())),
            ),
            (
                "1.2.3.4 - - [24/Nov/2026:04:42:13.250 +0100] \"GET /d HTTP/1.1\" 200 5".into(),
                Ok((AT + 250_000, "/d".into())),
            ),
            (format!("1.2.3.4 - - {time} \"GET /e\\\" HTTP/1.1\" 200 5"), Ok((AT, "/e\\".into()))),
            (format!("1.2.3.4 - - {time} \"-\" 408 0"), Err(NO_REQUEST)),
            (format!("1.2.3.4 - - {time} \"GET /cut"), Err(NO_REQUEST)),
            (format!("1.2.3.4 - - {time} GET /bare"), Err(NO_REQUEST)),
            ("1.2.3.4 - - [31/Feb/2026:03:42:13 +0000] \"GET /a HTTP/1.1\" 200 5".into(), Err(NO_TIME)),
            ("1.2.3.4 - - [".into(), Err(NO_TIME)),
        ];
        for (line, expected) in lines {
            assert_eq!(path(&line), expected, "{line}");
        }
    }
}
