//! Every form, as the programs write it.

use super::*;

const AT: i64 = 1_795_491_733_000_000;

fn read_utc(text: &str) -> Result<Figures, String> {
    read("f", text.as_bytes(), &TimeZone::UTC)
}

fn points(figures: &Figures, name: &str) -> Vec<(i64, f64)> {
    let names: Vec<_> = figures.series.iter().map(|series| &series.name).collect();
    let series = figures.series.iter().find(|series| series.name == name);
    let points = &series.unwrap_or_else(|| panic!("no {name} in {names:?}")).points;
    points.iter().map(|(at, value)| ((at - AT) / 1_000_000, *value)).collect()
}

#[test]
fn sadf_with_several_kinds_and_items() {
    let text = "# hostname;interval;timestamp;CPU;%user;%idle\n\
        vm;1;2026-11-24 03:42:13 UTC;-1;25.00;75.00\n\
        vm;1;2026-11-24 03:42:14 UTC;-1;40.00;60.00\n\
        # hostname;interval;timestamp;runq-sz;ldavg-1\n\
        vm;1;2026-11-24 03:42:13 UTC;2;2.44\n\
        vm;-1;2026-11-24 03:42:14 UTC;LINUX-RESTART\t(2 CPU)\n\
        # hostname;interval;timestamp;DEV;tps;%util\n\
        vm;1;2026-11-24 03:42:13 UTC;vda;124.00;0.40\n\
        vm;1;2026-11-24 03:42:13 UTC;vdb;1.00;0.00\n";
    let figures = read_utc(text).expect("readable");
    assert_eq!((figures.format, figures.used_zone, figures.unparsed), (Format::Sadf, false, 0));
    assert_eq!(points(&figures, "%user:all"), [(0, 25.0), (1, 40.0)]);
    assert_eq!(points(&figures, "%busy:all"), [(0, 25.0), (1, 40.0)]);
    assert_eq!(points(&figures, "ldavg-1"), [(0, 2.44)]);
    assert_eq!(points(&figures, "tps:vdb"), [(0, 1.0)]);
    // `sadf -U` and `sadf -T`.
    let epoch =
        read_utc("# hostname;interval;timestamp;CPU;%user\nvm;1;1795491733;-1;0.5\n").expect("readable");
    assert_eq!(points(&epoch, "%user:all"), [(0, 0.5)]);
    let local = text.replace(" UTC", "");
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    let local = read("f", local.as_bytes(), &zone).expect("readable");
    assert!(local.used_zone);
    assert_eq!(points(&local, "%user:all")[0].0, -3600);
}

#[test]
fn sadf_in_json() {
    let text = r#"{"sysstat": {"hosts": [{"nodename": "vm", "timezone": "UTC", "statistics": [
        {"timestamp": {"date": "2026-11-24", "time": "03:42:13", "utc": 1, "interval": 1},
         "cpu-load": [{"cpu": "all", "usr": 0.50, "idle": 3.00}, {"cpu": "0", "usr": 1.0, "idle": 4.0}],
         "queue": {"runq-sz": 2, "ldavg-1": 2.44},
         "network": {"net-dev": [{"iface": "lo", "rxkB": 1.5}]},
         "disk": [{"disk-device": "vda", "util-percent": 0.40}]},
        {"timestamp": {"date": "2026-11-24", "time": "03:42:14", "utc": 1, "interval": 1},
         "cpu-load": [{"cpu": "all", "usr": 0.75, "idle": 2.00}]}], "restarts": []}]}}"#;
    let figures = read_utc(text).expect("readable");
    assert_eq!((figures.format, figures.used_zone), (Format::SadfJson, false));
    assert_eq!(points(&figures, "cpu-load.usr:all"), [(0, 0.5), (1, 0.75)]);
    assert_eq!(points(&figures, "cpu-load.busy:all"), [(0, 97.0), (1, 98.0)]);
    assert_eq!(points(&figures, "queue.ldavg-1"), [(0, 2.44)]);
    assert_eq!(points(&figures, "network.net-dev.rxkB:lo"), [(0, 1.5)]);
    assert_eq!(points(&figures, "disk.util-percent:vda"), [(0, 0.4)]);
}

const SAR: &str = "Linux 6.1.0-18-amd64 (vm) \t11/24/26 \t_x86_64_\t(2 CPU)\n\n\
    03:42:12        CPU     %user     %idle\n\
    03:42:13        all      1.00     99.00\n\n\
    03:42:12      runq-sz  ldavg-1\n\
    03:42:13            2     2.44\n\n\
    03:42:13        CPU     %user     %idle\n\
    03:42:14        all      2.00     98.00\n\n\
    03:42:13      runq-sz  ldavg-1\n\
    03:42:14            3     2.40\n\n\
    Average:        CPU     %user     %idle\n\
    Average:        all      1.50     98.50\n";

#[test]
fn sar_as_it_is_printed() {
    let figures = read_utc(SAR).expect("readable");
    assert_eq!((figures.format, figures.used_zone, figures.unparsed), (Format::Sar, true, 0));
    assert_eq!(points(&figures, "%user:all"), [(0, 1.0), (1, 2.0)]);
    assert_eq!(points(&figures, "%busy:all"), [(0, 1.0), (1, 2.0)]);
    assert_eq!(points(&figures, "ldavg-1"), [(0, 2.44), (1, 2.4)]);
    for date in ["2026-11-24", "11/24/2026", "24/11/2026", "24.11.2026"] {
        let figures = read_utc(&SAR.replace("11/24/26", date)).expect(date);
        assert_eq!(points(&figures, "%user:all")[0], (0, 1.0), "{date}");
    }
    let ambiguous = read_utc(&SAR.replace("11/24/26", "11/12/26")).expect("readable");
    assert!(ambiguous.notes[0].contains("month/day"), "{:?}", ambiguous.notes);
    let halves = SAR
        .replace("03:42:12 ", "03:42:12 AM")
        .replace("03:42:13 ", "03:42:13 AM")
        .replace("03:42:14 ", "03:42:14 PM");
    let figures = read_utc(&halves).expect("readable");
    assert_eq!(points(&figures, "%user:all"), [(0, 1.0), (12 * 3600 + 1, 2.0)]);
    let undated = read_utc("Linux 6.1.0 (vm) _x86_64_\n").expect_err("no date");
    assert!(undated.contains("2026-11-24") && undated.contains("(vm)"), "{undated}");
}

#[test]
fn sar_past_midnight_table_by_table() {
    let text = "Linux 6.1.0 (vm) 2026-11-24\n\n\
        23:59:58 CPU %user\n23:59:59 all 1,50\n00:00:01 all 2,50\n\n\
        23:59:58 runq-sz ldavg-1\n23:59:59 1 0,5\n00:00:01 2 0,6\n";
    let figures = read_utc(text).expect("readable");
    let step = |name| {
        let points = points(&figures, name);
        (points[1].0 - points[0].0, points[1].1)
    };
    assert_eq!((step("%user:all"), step("ldavg-1")), ((2, 2.5), (2, 0.6)));
    assert_eq!(points(&figures, "%user:all")[0].0, points(&figures, "ldavg-1")[0].0);
}

#[test]
fn prometheus_range_query() {
    let text = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{"__name__":"node_load1","instance":"db:9100"},"values":[[1795491733,"0.5"],[1795491734.5,"NaN"],[1795491735,"0.75"]]},
        {"metric":{},"values":[[1795491733,"3"]]}]}}"#;
    let figures = read_utc(text).expect("readable");
    assert_eq!(figures.format, Format::Prometheus);
    assert_eq!(points(&figures, "node_load1{instance=db:9100}"), [(0, 0.5), (2, 0.75)]);
    assert_eq!(points(&figures, "value-1"), [(0, 3.0)]);
    let error =
        read_utc(r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#).expect_err("an error");
    assert!(error.contains("parse error"), "{error}");
    let instant = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    assert!(read_utc(instant).expect_err("one instant").contains("query_range"));
}

#[test]
fn csv_in_several_forms() {
    let forms = [
        "time,cpu,disk\n1795491733,50%,1\n1795491734,60%,\n",
        "cpu;Timestamp;disk\n50;2026-11-24T03:42:13Z;1\n60;2026-11-24T03:42:14Z;\n",
        "\"Time\",\"cpu\",\"disk\"\r\n\"2026-11-24 03:42:13\",\"50\",\"1\"\r\n\"2026-11-24 03:42:14\",\"60\",\"\"\r\n",
        "when\tcpu\tdisk\n1795491733000\t50\t1\nnever\t1\t1\n1795491734000\t60\tn/a\n",
    ];
    for text in forms {
        let figures = read_utc(text).expect(text);
        assert_eq!(figures.format, Format::Csv);
        assert_eq!(points(&figures, "cpu"), [(0, 50.0), (1, 60.0)], "{text}");
        assert_eq!(points(&figures, "disk"), [(0, 1.0)], "{text}");
        assert_eq!(figures.unparsed, u64::from(text.contains("never")));
        assert_eq!(figures.used_zone, text.contains("03:42:13\""));
    }
}

#[test]
fn mistakes_say_what_was_expected_and_what_came() {
    let mistakes = [
        ("", "empty"),
        ("# HELP node_load1 1m load average.\nnode_load1 0.5\n", "query_range"),
        ("node_cpu_seconds_total{cpu=\"0\"} 5.5\n", "query_range"),
        ("\u{1b}hello\n", "got: \\x1bhello"),
        ("1795491733,5\n1795491734,6\n", "expected a header"),
        ("time,cpu\nyesterday,5\n", "column `time`, got: yesterday"),
        ("time,cpu\n1795491733,high\n", "no figure with a time and a number"),
        ("{\"a\":1}", "neither of `sadf -j`"),
        ("{\"sysstat\": {", "no valid JSON"),
    ];
    for (text, expected) in mistakes {
        let error = read_utc(text).expect_err(text);
        assert!(error.starts_with("f: ") && error.contains(expected), "{text}: {error}");
    }
    let binary = read("f", &[0x96, 0xd5, 0, 1], &TimeZone::UTC).expect_err("binary");
    assert!(binary.contains("sadf -d"), "{binary}");
}

#[test]
fn the_step_is_the_median_gap() {
    let points = [0, 1, 2, 3, 60].map(|at| (at * 1_000_000, 1.0)).to_vec();
    assert_eq!(Series { name: "a".into(), points }.step_us(), Some(1_000_000));
    assert_eq!(Series { name: "a".into(), points: vec![(5, 1.0)] }.step_us(), None);
}
