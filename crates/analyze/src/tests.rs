//! From files to a finding: planted culprits, clocks that differ, and mistakes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::tz::TimeZone;
use tidegate_core::correlate::Settings;

use crate::analysis::{Report, Request, analyse};
use crate::types::By;
use crate::{html, report, suggestion};

/// 2026-11-24T03:42:13Z.
const START: i64 = 1_795_491_733;
const SECONDS: i64 = 300;

struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("tidegate-analyze-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn request(log: &Path, figures: &Path) -> Request {
    Request {
        logs: vec![log.to_owned()],
        log_format: None,
        log_zone: TimeZone::UTC,
        figures: vec![figures.to_owned()],
        figures_zone: TimeZone::UTC,
        interval_us: None,
        figure: None,
        by: By::Path,
        shift_within_s: 60,
        apply_shift: false,
        settings: Settings { max_lag: 5, ..Settings::default() },
    }
}

fn run(request: &Request) -> Result<Report, String> {
    analyse(request, &|_| {})
}

/// Evenly distributed below `below`, without a pattern.
fn drawn(second: i64, of: u64, below: u64) -> u64 {
    let mut x =
        second.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of.wrapping_mul(0xd134_2543_de82_ef95);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) % below
}

/// Requests per second of the searches and of each of three innocent types.
fn searches(second: i64) -> u64 {
    drawn(second, 1, 6)
}

fn log(paths: [&str; 4]) -> String {
    let mut out = String::new();
    for second in START..START + SECONDS {
        let time = jiff::Timestamp::from_second(second).expect("a time").strftime("%d/%b/%Y:%H:%M:%S +0000");
        for (of, path) in (0..).zip(paths) {
            let count = if of == 0 { searches(second) } else { 5 + drawn(second, 10 + of, 20) };
            for n in 0..count {
                out += &format!("10.0.0.1 - - [{time}] \"GET {path}{n} HTTP/1.1\" 200 5 \"-\" \"x\"\n");
            }
        }
    }
    out
}

const PATHS: [&str; 4] = ["/search?q=", "/item/", "/home?", "/about?"];

/// Busy by 15 for each search, and something else; the row of a second stands at its end.
fn sadf(ahead: i64) -> String {
    let mut out = String::from("# hostname;interval;timestamp;CPU;%user;%idle\n");
    for second in START..START + SECONDS {
        let busy = (10 + 15 * searches(second) + drawn(second, 99, 15)).min(100);
        out += &format!("db;1;{};-1;{busy}.00;{}.00\n", second + 1 + ahead, 100 - busy);
    }
    out
}

fn names(report: &Report) -> Vec<&str> {
    report.culprits().map(|row| row.name.as_str()).collect()
}

#[test]
fn the_planted_culprit_is_named_and_no_other() {
    let files = Files::new();
    let request = request(&files.write("a.log", log(PATHS)), &files.write("db.csv", sadf(0)));
    let found = run(&request).expect("a report");
    assert_eq!(names(&found), ["/search"]);
    assert_eq!((found.figure.as_str(), found.grid.count, found.outside), ("%busy:all", 300, 0));
    assert_eq!(found.rows.iter().map(|row| row.name.as_str()).filter(|name| *name == "/item/{n}").count(), 1);
    let search = &found.rows[0].finding;
    assert!(search.correlation.is_some_and(|c| c.r > 0.9 && c.p < 1e-6), "{search:?}");
    assert!(search.cost.is_some_and(|cost| cost.low < 15.0 && cost.high > 14.0), "{search:?}");
    assert_eq!((search.lag, found.shift), (0, None));
    let text = report::text(&found);
    for expected in
        ["/search", "culprit", "%busy:all", "[[class]]", "taken as they are", "300 intervals of 1 s"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let configuration = suggestion::toml(&found).expect("a suggestion");
    assert!(configuration.contains("match = { path = \"/search\" }"), "{configuration}");
    assert!(report::json(&found)["culprits"] == serde_json::json!(["/search"]));
}

#[test]
fn a_clock_that_is_wrong_is_reported_and_corrected_when_asked() {
    let files = Files::new();
    for ahead in [-42, 17] {
        let mut request = request(&files.write("a.log", log(PATHS)), &files.write("db.csv", sadf(ahead)));
        request.shift_within_s = 60;
        let found = run(&request).expect("a report");
        let told = report::text(&found);
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        assert!(
            told.contains(&format!("{} s {side} the log's", ahead.abs())) && told.contains("--align"),
            "{told}"
        );
        assert!(names(&found).is_empty(), "{ahead}");
        request.apply_shift = true;
        let found = run(&request).expect("a report");
        assert_eq!((names(&found), found.shift_applied), (vec!["/search"], true), "{ahead}");
        assert_eq!(found.grid.count, 300, "nothing is lost at the ends: {ahead}");
        assert!(report::text(&found).contains("was taken back"));
    }
}

#[test]
fn figures_that_are_seldom_make_longer_intervals() {
    let files = Files::new();
    let mut csv = String::from("time,cpu\n");
    for at in 0..30 {
        let within = (START + at * 10)..(START + at * 10 + 10);
        csv += &format!("{},{}\n", START + at * 10 + 10, within.map(searches).sum::<u64>());
    }
    let mut request = request(&files.write("a.log", log(PATHS)), &files.write("db.csv", csv));
    let found = run(&request).expect("a report");
    assert_eq!((found.grid.interval_us, found.grid.count), (10_000_000, 30));
    assert_eq!(names(&found), ["/search"]);
    request.interval_us = Some(5_000_000);
    let error = run(&request).expect_err("too short");
    assert!(error.contains("at least 10 s") && error.contains("got 5 s"), "{error}");
}

#[test]
fn mistakes_are_explained() {
    let files = Files::new();
    let (good_log, good) = (files.write("a.log", log(PATHS)), files.write("db.csv", sadf(0)));
    let of = |log: &Path, figures: &Path| run(&request(log, figures)).expect_err("a mistake");

    let hour = files.write("hour.csv", sadf(3600).replace(";%idle", "").replace("%user", "cpu"));
    let apart = of(&good_log, &hour);
    assert!(apart.contains("share no time") && apart.contains("2026-11-24T03:42:13Z"), "{apart}");
    assert!(!apart.contains("--figures-timezone"), "these times are epochs: {apart}");

    let iso =
        |second: i64| jiff::Timestamp::from_second(second).expect("a time").strftime("%F %T").to_string();
    let rows = (0..SECONDS).map(|at| format!("{},{}\n", iso(START + at + 1 + 7200), searches(START + at)));
    let local = files.write("local.csv", format!("time,cpu\n{}", rows.collect::<String>()));
    let zone = of(&good_log, &local);
    assert!(zone.contains("+02:00 between them") && zone.contains("--figures-timezone"), "{zone}");
    let mut right = request(&good_log, &local);
    right.figures_zone = crate::zone("+02:00").expect("an offset");
    assert_eq!(names(&run(&right).expect("a report")), ["/search"]);

    let flat = (0..SECONDS).map(|at| format!("{},50\n", START + at)).collect::<String>();
    let flat = files.write("flat.csv", format!("time,cpu\n{flat}"));
    assert!(of(&good_log, &flat).contains("no figure varies"));
    let mut named = request(&good_log, &flat);
    named.figure = Some("cpu".into());
    assert!(run(&named).expect_err("constant").contains("constant (50)"));

    let noise = files.write("noise.log", "hello\n");
    assert!(of(&noise, &good).contains("unknown format"));
    let mut forced = request(&noise, &good);
    forced.log_format = Some(crate::log::Format::Json);
    let none = run(&forced).expect_err("no request");
    assert!(none.contains("no request in the log: 1 lines") && none.contains("hello"), "{none}");
    let missing = of(Path::new("/nowhere/a.log"), &good);
    assert!(missing.starts_with("/nowhere/a.log: "), "{missing}");
    assert!(of(&good_log, Path::new("/nowhere/db.csv")).starts_with("/nowhere/db.csv: "));
}

#[test]
fn several_logs_compressed_and_in_any_order() {
    let files = Files::new();
    let text = log(PATHS);
    let half = text[..text.len() / 2].rfind('\n').expect("lines") + 1;
    let (first, second) = text.split_at(half);
    let zstd = zstd::encode_all(second.as_bytes(), 1).expect("memory");
    let mut request = request(&files.write("b.zst", zstd), &files.write("db.csv", sadf(0)));
    request.logs.push(files.write("a.log", first));
    let found = run(&request).expect("a report");
    assert_eq!((names(&found), found.grid.count), (vec!["/search"], 300));
    assert_eq!(found.tally.requests as usize, text.lines().count());
}

#[test]
fn texts_of_strangers_are_shown_and_not_obeyed() {
    let files = Files::new();
    let hostile = ["/<script>alert(1)</script>\u{1b}[31m?q=", "/item/", "/a'&b?", "/about?"];
    let csv = sadf(0).replace("%idle", "<b>\"busy\"");
    let mut request = request(&files.write("a.log", log(hostile)), &files.write("db.csv", csv));
    request.figure = Some("%user".into());
    let found = run(&request).expect("a report");
    assert_eq!(names(&found).len(), 1);
    let page = html::page(&found);
    // What no template has is folded; the rest is escaped.
    assert!(page.contains("{token}") && !page.contains("<script") && !page.contains("alert(1)"), "folded");
    assert!(page.contains("/a&#39;&amp;b"), "escaped");
    assert!(page.contains("default-src 'none'") && !page.contains("http://") && page.contains("<svg"));
    for text in [&page, &report::text(&found), &suggestion::toml(&found).expect("a suggestion")] {
        assert!(!text.contains('\u{1b}'), "no command to a terminal");
    }
}

#[test]
fn classes_of_our_own_log() {
    let files = Files::new();
    let mut lines = String::new();
    for second in START..START + SECONDS {
        let time = jiff::Timestamp::from_second(second).expect("a time");
        for (class, count) in [("search", searches(second)), ("page", drawn(second, 3, 20))] {
            let line = format!(
                "{{\"time\":\"{time}\",\"target\":\"/{class}\",\"class\":\"{class}\",\"verdict\":\"served\",\"replica\":\"a\"}}\n"
            );
            lines += &line.repeat(count as usize);
        }
        // Refused by the gate: it put no load on the origin, whatever it came with.
        let refused = 5_u64.saturating_sub(searches(second));
        let line = format!(
            "{{\"time\":\"{time}\",\"target\":\"/search\",\"class\":\"search\",\"verdict\":\"refused\"}}\n"
        );
        lines += &line.repeat(refused as usize);
    }
    let mut request = request(&files.write("a.json", lines), &files.write("db.csv", sadf(0)));
    request.by = By::Class;
    let found = run(&request).expect("a report");
    assert_eq!(names(&found), ["search"]);
    assert!(found.tally.kept_from_origin > 0);
    let configuration = suggestion::toml(&found).expect("a suggestion");
    assert!(configuration.contains("# In [[class]] search:"), "{configuration}");
}
