//! The crowd of an access log: each request a visitor of its own, at the log's own times.
//!
//! A log is written when answers end, so its lines are sorted by time first. Most logs tell times to the
//! second: what falls into the same second is spread evenly over it, in the order of the lines. Sent in one
//! instant, it would be a burst that never was. What a body held, no log tells: requests are sent without.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::line;
use crate::dist::MAX_TIME;
use crate::scenario::{Kind, Step};

/// Most visitors of a log: 320 MB of memory.
const MAX_VISITORS: usize = 20_000_000;
/// Most distinct requests: about 100 MB of memory.
const MAX_REQUESTS: usize = 200_000;
/// Longest line that is looked at, in bytes.
const MAX_LINE: usize = 64 << 10;
/// Unreadable lines that are reported one by one.
const MAX_TOLD: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in microseconds since the first.
    pub at_us: u64,
    pub kind: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    pub arrivals: Vec<Arrival>,
    /// One kind for each distinct method and path.
    pub kinds: Vec<Kind>,
    pub skipped: Skipped,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub lines: u64,
    /// Number, from 1, and reason of the first ten of them.
    pub first: Vec<(u64, String)>,
}

impl std::fmt::Display for Skipped {
    /// `3 lines (2: no time that could be read; 7: ...)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} lines", self.lines)?;
        for (i, (number, reason)) in self.first.iter().enumerate() {
            write!(f, "{}{number}: {reason}", if i == 0 { " (" } else { "; " })?;
        }
        match self.first.len() {
            0 => Ok(()),
            told if (told as u64) < self.lines => f.write_str("; ...)"),
            _ => f.write_str(")"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No log, and no phase in which somebody comes.
    #[error("arrivals: expected a phase with a rate above 0 or a log to replay; got none: nobody would come")]
    Nobody,
    #[error("{}: expected a readable access log; got: {source}", log.display())]
    Unreadable {
        log: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It has no request that could be played.
    #[error("{}: expected an access log in combined form or one JSON object a line; could not read {skipped}", log.display())]
    Nothing { log: PathBuf, skipped: Skipped },
    #[error("{}: expected at most {most} {what}; got more by line {line}", log.display())]
    TooMany { log: PathBuf, what: &'static str, most: usize, line: u64 },
    #[error("{}: expected the requests of at most a year; got {days} days from the first to the last", log.display())]
    TooLong { log: PathBuf, days: u64 },
}

struct Entry {
    at_us: i64,
    kind: u32,
    whole_second: bool,
}

impl Log {
    /// Reads a log whose visitors are like `behaviour` but for what they ask for. Their kinds are numbered
    /// from `first`.
    pub fn load(log: &Path, behaviour: &Kind, first: u32) -> Result<Self, ReplayError> {
        let file = File::open(log).map_err(|source| ReplayError::Unreadable { log: log.into(), source })?;
        Self::read(BufReader::with_capacity(1 << 16, file), log, behaviour, first)
    }

    /// As [`Log::load`], from memory or a pipe; `log` is its name in errors.
    pub fn read(
        mut from: impl BufRead,
        log: &Path,
        behaviour: &Kind,
        first: u32,
    ) -> Result<Self, ReplayError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut known: HashMap<(String, String), u32> = HashMap::new();
        let mut new = Self::default();
        let mut bytes = Vec::new();
        let too_many = |what, most, line| ReplayError::TooMany { log: log.into(), what, most, line };
        for number in 1u64.. {
            match next_line(&mut from, &mut bytes) {
                Ok(false) => break,
                Ok(true) => {}
                Err(source) => return Err(ReplayError::Unreadable { log: log.into(), source }),
            }
            let text = String::from_utf8_lossy(&bytes);
            if text.trim().is_empty() {
                continue;
            }
            let fits = if bytes.len() > MAX_LINE { Err("longer than 64 KiB") } else { Ok(()) };
            let said = match fits.and_then(|()| line::read(&text)) {
                Ok(said) => said,
                Err(reason) => {
                    new.skipped.lines += 1;
                    if new.skipped.first.len() < MAX_TOLD {
                        new.skipped.first.push((number, reason.into()));
                    }
                    continue;
                }
            };
            let next = first + new.kinds.len() as u32;
            let kind = *known.entry((said.method, said.target)).or_insert_with_key(|(method, path)| {
                new.kinds.push(kind(behaviour, method, path));
                next
            });
            entries.push(Entry { at_us: said.at_us, kind, whole_second: said.whole_second });
            if new.kinds.len() > MAX_REQUESTS {
                return Err(too_many("distinct requests", MAX_REQUESTS, number));
            }
            if entries.len() > MAX_VISITORS {
                return Err(too_many("requests", MAX_VISITORS, number));
            }
        }
        if entries.is_empty() {
            return Err(ReplayError::Nothing { log: log.into(), skipped: new.skipped });
        }
        new.arrivals = arrivals(entries);
        let lasts = new.arrivals.last().map_or(0, |last| last.at_us);
        if u128::from(lasts) > MAX_TIME.as_micros() {
            return Err(ReplayError::TooLong { log: log.into(), days: lasts / 86_400_000_000 });
        }
        Ok(new)
    }
}

/// The next line into `bytes`, without its end; `false`: there is none. Of a line that is too long, just
/// enough to see that it is.
fn next_line(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    if from.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', bytes)? == 0 {
        return Ok(false);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if bytes.len() > MAX_LINE {
        from.skip_until(b'\n')?;
    }
    Ok(true)
}

fn kind(behaviour: &Kind, method: &str, path: &str) -> Kind {
    let step = Step { method: method.into(), path: path.into(), ..Step::default() };
    Kind { name: format!("{method} {path}"), weight: 0.0, steps: vec![step], ..behaviour.clone() }
}

/// Times since the first, whole seconds spread. Sorting is stable: within an instant the log's order counts.
fn arrivals(mut entries: Vec<Entry>) -> Vec<Arrival> {
    entries.sort_by_key(|entry| entry.at_us);
    for second in entries.chunk_by_mut(|a, b| a.at_us == b.at_us) {
        let among = second.iter().filter(|entry| entry.whole_second).count() as i64;
        for (i, entry) in (0i64..).zip(second.iter_mut().filter(|entry| entry.whole_second)) {
            entry.at_us += 1_000_000 * i / among;
        }
    }
    // Times with a fraction may now lie between.
    entries.sort_by_key(|entry| entry.at_us);
    let first = entries.first().map_or(0, |entry| entry.at_us);
    let arrival =
        |Entry { at_us, kind, .. }| Arrival { at_us: i64::saturating_sub(at_us, first).unsigned_abs(), kind };
    entries.into_iter().map(arrival).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Log, ReplayError> {
        Log::read(text.as_bytes(), Path::new("access.log"), &Kind::default(), 1)
    }

    fn line(second: u32, path: &str) -> String {
        format!(
            "h - - [10/Oct/2000:13:55:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 1 \"-\" \"a \\\"b\\\"\"\n"
        )
    }

    #[test]
    fn whole_seconds_are_spread_and_lines_sorted() {
        let text = [line(7, "/c"), line(5, "/a"), line(5, "/b"), line(5, "/a"), line(5, "/d")].concat();
        let log = read(&text).unwrap();
        let at: Vec<_> = log.arrivals.iter().map(|arrival| (arrival.at_us, arrival.kind)).collect();
        assert_eq!(at, [(0, 2), (250_000, 3), (500_000, 2), (750_000, 4), (2_000_000, 1)]);
        let names: Vec<_> = log.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["GET /c", "GET /a", "GET /b", "GET /d"]);
        assert_eq!(log.kinds[1].steps[0].path, "/a");
        assert_eq!(log.kinds[1].patience, Kind::default().patience);
    }

    #[test]
    fn exact_times_stay_as_they_are() {
        let at = |time: &str| format!("{{\"time\":\"2000-10-10T20:55:{time}Z\",\"path\":\"/\"}}\n");
        let log = read(&[at("36.500"), at("36.500"), at("36.250")].concat()).unwrap();
        assert_eq!(
            log.arrivals.iter().map(|arrival| arrival.at_us).collect::<Vec<_>>(),
            [0, 250_000, 250_000]
        );
    }

    #[test]
    fn bad_lines_are_counted_and_reported() {
        let text = format!("bad\n\n{}{}\n{}", line(5, "/"), "x".repeat(MAX_LINE + 5), line(6, "/"));
        let log = read(&text).unwrap();
        assert_eq!(log.arrivals.len(), 2);
        assert_eq!(log.skipped.to_string(), "2 lines (1: no time that could be read; 4: longer than 64 KiB)");
        let many = read(&format!("{}{}", "bad\n".repeat(20), line(5, "/"))).unwrap();
        assert_eq!((many.skipped.lines, many.skipped.first.len()), (20, MAX_TOLD));
        assert!(many.skipped.to_string().ends_with("10: no time that could be read; ...)"));
    }

    #[test]
    fn logs_that_cannot_be_played() {
        assert!(matches!(read("a\nb\n"), Err(ReplayError::Nothing { skipped, .. }) if skipped.lines == 2));
        assert!(matches!(read(""), Err(ReplayError::Nothing { .. })));
        let days_apart = "{\"time\":0,\"path\":\"/\"}\n{\"time\":63072000,\"path\":\"/\"}\n";
        let error = read(days_apart).unwrap_err().to_string();
        assert!(error.ends_with("got 730 days from the first to the last"), "{error}");
        let nowhere =
            Log::load(Path::new("does/not/exist.log"), &Kind::default(), 1).unwrap_err().to_string();
        assert!(
            nowhere.starts_with("does/not/exist.log: expected a readable access log; got: "),
            "{nowhere}"
        );
    }
}
