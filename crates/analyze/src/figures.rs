//! Figures of a host over time: CSV, sysstat's `sadf -d`, `sadf -j` and `sar`, and Prometheus' range queries.

use jiff::tz::TimeZone;

use crate::log::shown;

mod csv;
mod prometheus;
mod sadf_json;
mod sar;

/// A form of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    Sadf,
    SadfJson,
    Sar,
    Prometheus,
}

impl Format {
    /// As the report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Sadf => "sadf -d",
            Self::SadfJson => "sadf -j",
            Self::Sar => "sar",
            Self::Prometheus => "Prometheus range query",
        }
    }
}

/// Values of one figure, in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// `name`, or `name:item` of one CPU, disk or interface.
    pub name: String,
    /// Microseconds since 1970, value. A sample says what has been since the one before.
    pub points: Vec<(i64, f64)>,
}

impl Series {
    /// The time between two samples: the median.
    pub fn step_us(&self) -> Option<i64> {
        let mut gaps: Vec<i64> = self.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let middle = gaps.len() / 2;
        gaps.get(middle)?;
        Some(*gaps.select_nth_unstable(middle).1)
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub format: Format,
    pub series: Vec<Series>,
    /// Times named no offset and were read as the zone's.
    pub used_zone: bool,
    /// Rows that could not be read.
    pub unparsed: u64,
    /// What a reader should know of how the file was read.
    pub notes: Vec<String>,
}

/// Reads the text of a file. Times without an offset are read as `zone`'s.
///
/// # Errors
/// The format is unknown, or no series can be made of the file.
pub fn read(name: &str, text: &[u8], zone: &TimeZone) -> Result<Figures, String> {
    let format = find_format(text).map_err(|why| format!("{name}: {why}"))?;
    let text = String::from_utf8_lossy(text);
    let mut table = Table::default();
    let read = match format {
        Format::Csv | Format::Sadf => csv::read(&text, format == Format::Sadf, zone, &mut table),
        Format::SadfJson => sadf_json::read(&text, zone, &mut table),
        Format::Sar => sar::read(&text, zone, &mut table),
        Format::Prometheus => prometheus::read(&text, &mut table),
    };
    read.map_err(|why| format!("{name}: {why}"))?;
    let Table { mut series, used_zone, unparsed, notes } = table;
    series.retain(|series| !series.points.is_empty());
    if series.is_empty() {
        return Err(format!("{name}: no figure with a time and a number in it ({})", format.name()));
    }
    for series in &mut series {
        series.points.sort_by_key(|point| point.0);
        series.points.dedup_by_key(|point| point.0);
    }
    let mut busy: Vec<Series> = series.iter().filter_map(busy_of).collect();
    series.append(&mut busy);
    Ok(Figures { format, series, used_zone, unparsed, notes })
}

/// What a CPU is not idle: the figure that sysstat does not print.
fn busy_of(idle: &Series) -> Option<Series> {
    let (name, item) =
        idle.name.split_once(':').map_or((idle.name.as_str(), None), |(n, item)| (n, Some(item)));
    let name = match name {
        "%idle" => "%busy",
        "cpu-load.idle" => "cpu-load.busy",
        "cpu-load-all.idle" => "cpu-load-all.busy",
        _ => return None,
    };
    let name = item.map_or(name.to_owned(), |item| format!("{name}:{item}"));
    Some(Series { name, points: idle.points.iter().map(|(at, value)| (*at, 100.0 - value)).collect() })
}

/// What the readers fill.
#[derive(Default)]
struct Table {
    series: Vec<Series>,
    used_zone: bool,
    unparsed: u64,
    notes: Vec<String>,
}

impl Table {
    /// Adds a value to the series of that name, which probably is the one at `at`. Returns where it is.
    fn push(&mut self, at: usize, name: &str, time_us: i64, value: f64) -> usize {
        let found = self.series.get(at).is_some_and(|series| series.name == name).then_some(at);
        let found = found.or_else(|| self.series.iter().position(|series| series.name == name));
        let at = found.unwrap_or_else(|| {
            self.series.push(Series { name: name.to_owned(), points: Vec::new() });
            self.series.len() - 1
        });
        if value.is_finite() {
            self.series[at].points.push((time_us, value));
        }
        at
    }
}

/// First bytes of sysstat's own files.
const SYSSTAT_MAGIC: [u8; 2] = [0x96, 0xd5];

fn find_format(text: &[u8]) -> Result<Format, String> {
    if text.starts_with(&SYSSTAT_MAGIC) {
        return Err("a data file of sysstat: `sadf -d FILE -- -A` makes readable text of it".into());
    }
    let text = text.trim_ascii_start();
    let line = &text[..memchr::memchr(b'\n', text).unwrap_or(text.len())].trim_ascii_end();
    let has = |what: &[u8]| memchr::memmem::find(&text[..text.len().min(4096)], what).is_some();
    if line.is_empty() {
        return Err("no figures: the file is empty".into());
    }
    if line.starts_with(b"{") || line.starts_with(b"[") {
        return match () {
            () if has(b"\"sysstat\"") => Ok(Format::SadfJson),
            () if has(b"\"resultType\"") || has(b"\"result\"") || has(b"\"status\"") => {
                Ok(Format::Prometheus)
            }
            () => Err("JSON, but neither of `sadf -j` nor of a range query of Prometheus".into()),
        };
    }
    if line.starts_with(b"# hostname;interval;timestamp") {
        return Ok(Format::Sadf);
    }
    if line.starts_with(b"# HELP ") || line.starts_with(b"# TYPE ") || is_sample(line) {
        return Err(
            "the metrics of one instant (Prometheus' text form, as node_exporter answers): expected \
                    values over time; ask Prometheus for /api/v1/query_range, or collect them into a CSV file"
                .into(),
        );
    }
    if line.starts_with(b"Linux ") && memchr::memchr(b'(', line).is_some() {
        return Ok(Format::Sar);
    }
    if line.iter().any(|b| b",;\t".contains(b)) {
        return Ok(Format::Csv);
    }
    Err(format!(
        "unknown format: expected CSV with a header, `sadf -d`, `sadf -j`, `sar`, or a range query of \
         Prometheus in JSON, got: {}",
        shown(line)
    ))
}

/// `name{label="value"} 1.5`.
fn is_sample(line: &[u8]) -> bool {
    let name = line.iter().take_while(|b| b.is_ascii_alphanumeric() || b"_:".contains(b)).count();
    let rest = &line[name..];
    let value = memchr::memrchr(b' ', rest).map_or(&b""[..], |at| &rest[at + 1..]);
    let is_number = std::str::from_utf8(value).is_ok_and(|value| value.parse::<f64>().is_ok());
    name > 0 && is_number && (rest.starts_with(b"{") || rest.starts_with(b" ") && !line[0].is_ascii_digit())
}

#[cfg(test)]
mod tests;
