//! CSV with a header, and `sadf -d`, whose header comes again before each kind of figure.

use jiff::tz::TimeZone;

use super::Table;
use crate::log::shown;
use crate::log::time::{Times, epoch};

/// Names of a column of times. Without one of them it is the first column.
const TIME_NAMES: [&str; 8] =
    ["time", "timestamp", "@timestamp", "ts", "date", "datetime", "epoch", "time_s"];

/// Where the columns of `sadf -d` begin: behind host, interval and time.
const SADF_COLUMNS: usize = 3;

/// The header under which rows stand.
struct Header {
    time: usize,
    /// The column that names the CPU, disk or interface.
    item: Option<usize>,
    names: Vec<String>,
    /// Columns before it are no figures.
    first: usize,
}

/// # Errors
/// No row has a time.
pub(super) fn read(text: &str, is_sadf: bool, zone: &TimeZone, table: &mut Table) -> Result<(), String> {
    let mut times = Times::new(zone.clone());
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    let first = lines.peek().copied().unwrap_or_default();
    let delimiter = delimiter(first);
    let mut header = None;
    let mut first_unparsed = None;
    let mut rows = 0_u64;
    for line in lines {
        let cells = cells(line.trim_end_matches('\r'), delimiter);
        let Some(header) = header.as_ref().filter(|_| !(is_sadf && line.starts_with('#'))) else {
            header = Some(Header::of(&cells, is_sadf, &mut times)?);
            continue;
        };
        let time = cells.get(header.time).map(|cell| cell.trim()).unwrap_or_default();
        let at = match time.parse() {
            Ok(number) => epoch(number),
            Err(_) => times.text(time),
        };
        let Some(at) = at else {
            // sadf says with a row of its own that the host was restarted.
            if !(is_sadf && line.contains("LINUX-RESTART")) {
                table.unparsed += 1;
                first_unparsed.get_or_insert(time.to_owned());
            }
            continue;
        };
        rows += 1;
        header.push(&cells, at, table);
    }
    table.used_zone = times.used_zone;
    match first_unparsed {
        Some(time) if rows == 0 => Err(format!(
            "no row has a time that can be read: expected seconds since 1970 or ISO 8601 in column `{}`, got: {}",
            header.as_ref().map(|h| h.names[h.time].as_str()).unwrap_or_default(),
            shown(time.as_bytes())
        )),
        _ => Ok(()),
    }
}

impl Header {
    fn of(cells: &[String], is_sadf: bool, times: &mut Times) -> Result<Self, String> {
        let names: Vec<String> = cells
            .iter()
            .map(|cell| cell.trim().trim_start_matches(['#', '\u{feff}']).trim().into())
            .collect();
        if is_sadf {
            // The time is the third, the item the fourth where the name is one in capitals.
            let is_item =
                |name: &str| name.len() > 1 && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
            let item = names.get(SADF_COLUMNS).is_some_and(|name| is_item(name)).then_some(SADF_COLUMNS);
            return Ok(Self { time: SADF_COLUMNS - 1, item, names, first: SADF_COLUMNS });
        }
        if let Some(first) = names.first().filter(|first| times.text(first).is_some()) {
            return Err(format!(
                "expected a header that names the columns in the first line, got a row: {first},..."
            ));
        }
        let is_time = |name: &String| TIME_NAMES.iter().any(|time| name.eq_ignore_ascii_case(time));
        let time = names.iter().position(is_time).unwrap_or(0);
        Ok(Self { time, item: None, names, first: 0 })
    }

    fn push(&self, cells: &[String], at: i64, table: &mut Table) {
        let is_figure =
            |column: usize| column >= self.first && column != self.time && Some(column) != self.item;
        // `-1` is sadf's name of all CPUs together.
        let item = self.item.and_then(|item| cells.get(item)).map(|item| match item.trim() {
            "-1" => "all",
            item => item,
        });
        let mut next = 0;
        for (column, name) in self.names.iter().enumerate().filter(|(column, _)| is_figure(*column)) {
            let Some(cell) = cells.get(column) else { continue };
            let Ok(value) = cell.trim().trim_end_matches('%').trim().parse::<f64>() else { continue };
            next = match item {
                Some(item) => table.push(next, &format!("{name}:{item}"), at, value),
                None => table.push(next, name, at, value),
            } + 1;
        }
    }
}

/// The one of which the header has most.
fn delimiter(header: &str) -> u8 {
    let count = |delimiter: &u8| header.bytes().filter(|b| b == delimiter).count();
    *b",;\t".iter().max_by_key(|delimiter| count(delimiter)).expect("a list of three")
}

/// Cells of a row; those in quotes may hold delimiters, and a quote as two.
fn cells(line: &str, delimiter: u8) -> Vec<String> {
    let delimiter = char::from(delimiter);
    if !line.contains('"') {
        return line.split(delimiter).map(str::to_owned).collect();
    }
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                cell.push('"');
                chars.next();
            }
            '"' => quoted = !quoted,
            c if c == delimiter && !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}
