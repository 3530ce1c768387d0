//! What `sar` prints: a line with the date, then tables with a header each. Times are those of a clock on the
//! wall; after midnight the next day begins.

use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

use super::Table;
use crate::log::shown;

/// First columns that name the CPU, disk, interface... of a row.
const ITEMS: [&str; 11] =
    ["CPU", "DEV", "IFACE", "INTR", "TTY", "FAN", "TEMP", "IN", "BUS", "FILESYSTEM", "FCHOST"];

/// A table, perhaps in several parts: `sar` prints a header again and again. Live, the parts of several
/// tables alternate; of a file, one table goes through the whole day, and then the next.
struct Block<'a> {
    item: bool,
    names: Vec<&'a str>,
    /// Words of a time: two where there is AM or PM.
    time_words: usize,
    day: Date,
    last: Time,
}

/// # Errors
/// The first line has no date that can be read.
pub(super) fn read(text: &str, zone: &TimeZone, table: &mut Table) -> Result<(), String> {
    table.used_zone = true;
    let mut day = None;
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut current = None;
    let mut next = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("Linux ") {
            day = Some(date_of(line, table)?);
            (current, blocks) = (None, Vec::new());
            continue;
        }
        // "Average:" says nothing of an instant.
        let Some((time, time_words)) = time_of(&words) else { continue };
        let rest = &words[time_words..];
        if line.contains("LINUX RESTART") || rest.is_empty() {
            continue;
        }
        if is_header(rest) {
            let known = blocks.iter().position(|block| block.names == rest);
            current = known.or_else(|| {
                let item = ITEMS.contains(&rest[0]);
                blocks.push(Block { item, names: rest.to_vec(), time_words, day: day?, last: Time::MIN });
                Some(blocks.len() - 1)
            });
            next = usize::MAX;
            continue;
        }
        let Some(block) = current.and_then(|at| blocks.get_mut(at)) else {
            table.unparsed += 1;
            continue;
        };
        // A table that goes back by more than half a day has passed midnight.
        if block.last.duration_until(time).as_hours() <= -12 {
            block.day = block.day.tomorrow().map_err(|e| e.to_string())?;
        }
        block.last = time;
        let at = zone.to_timestamp(DateTime::from_parts(block.day, time));
        let (Ok(at), true) = (at, rest.len() == block.names.len() && block.time_words == time_words) else {
            table.unparsed += 1;
            continue;
        };
        for (name, word) in block.names.iter().zip(rest).skip(usize::from(block.item)) {
            // A comma is the decimal point of many languages.
            let Ok(value) = word.replace(',', ".").parse::<f64>() else { continue };
            let name = if block.item { format!("{name}:{}", rest[0]) } else { (*name).to_owned() };
            next = table.push(next, &name, at.as_microsecond(), value) + 1;
        }
    }
    Ok(())
}

/// Names are no numbers; but for an item, a row is all numbers.
fn is_header(words: &[&str]) -> bool {
    words.iter().skip(1).all(|word| word.replace(',', ".").parse::<f64>().is_err())
        && words[0].parse::<f64>().is_err()
        && words.len() > 1
}

/// `03:42:13` or `03:42:13 AM`, and how many words it is.
fn time_of(words: &[&str]) -> Option<(Time, usize)> {
    let time = words.first()?;
    if time.len() != 8 || !time.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    if let Some(half @ ("AM" | "PM")) = words.get(1).copied() {
        let time = BrokenDownTime::parse("%I:%M:%S %p", format!("{time} {half}")).ok()?.to_time().ok()?;
        return Some((time, 2));
    }
    Some((time.parse().ok()?, 1))
}

/// `Linux 6.1.0 (host) 11/24/26 _x86_64_ (2 CPU)`: its date, in the forms of several languages.
fn date_of(line: &str, table: &mut Table) -> Result<Date, String> {
    let digit = |word: &&str| word.as_bytes()[0].is_ascii_digit();
    let parts = |word: &str| {
        word.split(['/', '.', '-']).map(|part| part.parse::<i16>().ok()).collect::<Option<Vec<_>>>()
    };
    // The release, which comes first, may look like a date.
    let words = line.split_whitespace().skip(2).filter(digit);
    let found = words.filter_map(|word| Some((word, parts(word).filter(|parts| parts.len() == 3)?)));
    let Some((word, parts)) = found.last() else {
        return Err(format!(
            "expected a date in sar's first line, such as 2026-11-24 or 11/24/26, got: {}",
            shown(line.as_bytes())
        ));
    };
    let (year, month, day) = match (parts[0], parts[1], parts[2]) {
        (year, month, day) if year > 31 => (year, month, day),
        (day, month, year) if word.contains('.') || day > 12 => (year, month, day),
        (month, day, year) => {
            if day <= 12 && day != month {
                table
                    .notes
                    .push(format!("the date {word} was read as month/day; S_TIME_FORMAT=ISO makes it clear"));
            }
            (year, month, day)
        }
    };
    let year = if year < 100 { 2000 + year } else { year };
    let narrow = |number: i16| i8::try_from(number).unwrap_or(-1);
    Date::new(year, narrow(month), narrow(day)).map_err(|_| format!("no date that exists: {word}"))
}
