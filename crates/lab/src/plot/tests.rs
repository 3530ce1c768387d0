//! Figures are the same everywhere, show what is there, and lose nothing that a reader could see.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn line(name: &str, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
    Line { name: name.into(), points: points.into_iter().collect(), style }
}

fn of(line: Line) -> Plot {
    Plot { lines: vec![line], ..Plot::default() }
}

/// A crowd of four seconds at a service that can take 100 a second.
fn plot() -> Plot {
    let offered = (0..12).map(|t| (f64::from(t), if t < 4 { 600.0 } else { 3.0 }));
    let served = (0..12).map(|t| (f64::from(t), f64::from(100 - t)));
    let told = [(0.5, 40.0), (1.5, 220.0), (2.5, f64::NAN), (3.5, 560.0)];
    Plot {
        title: "Requests per second <with the gate>".into(),
        x_label: "time (s)".into(),
        y_label: "requests (1/s)".into(),
        lines: vec![
            line("offered", Style::Steps, offered),
            line("served", Style::Line, served),
            line("told", Style::Points, told),
        ],
        h_lines: vec![("capacity".into(), 100.0), ("+ 10 %".into(), 110.0)],
        ..Plot::default()
    }
}

/// The coordinates of every `points="..."`, in tenths of a pixel.
fn polylines(svg: &str) -> Vec<Vec<(i32, i32)>> {
    let lists = svg.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let pair = |pair: &str| {
        let (x, y) = pair.split_once(',').expect("x,y");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    lists.map(|list| list.split_whitespace().map(pair).collect()).collect()
}

/// Those of the lines, which are drawn in colours; axes and grid are grey.
fn traces(svg: &str) -> Vec<Vec<(i32, i32)>> {
    let coloured =
        svg.lines().filter(|line| line.contains("stroke=\"#0072B2\"") && line.contains("polyline"));
    coloured.flat_map(polylines).filter(|points| points.len() != 2).collect()
}

#[test]
fn a_figure_is_what_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plot.svg");
    let drawn = plot().svg(560, 280);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, &drawn).expect("the golden figure");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        drawn == golden,
        "the figure has changed: run this test with TIDEGATE_BLESS=1, look at {}, and keep it if it is right",
        path.display()
    );
}

#[test]
fn names_are_escaped_and_in_the_text_alternative() {
    let svg = plot().svg(560, 280);
    assert!(svg.contains("role=\"img\" aria-label=\"Requests per second &lt;with the gate&gt;: requests"));
    assert!(svg.contains("offered from 3 to 600; served from 89 to 100; told from 40 to 560\""), "{svg}");
    assert!(!svg.contains("<with"));
}

#[test]
fn a_series_of_a_day_keeps_its_peaks_and_little_else() {
    let peak = 51_234;
    let y = |t: u32| if t == peak { 1000.0 } else { 500.0 + f64::from(t % 7) };
    let svg = of(line("a", Style::Line, (0..86_400).map(|t| (f64::from(t), y(t))))).svg(600, 300);
    let traces = traces(&svg);
    let [trace] = traces.as_slice() else { panic!("one line: {}", traces.len()) };
    assert!(trace.len() < 4 * 600 && trace.len() > 600, "{}", trace.len());
    let top = trace.iter().map(|point| point.1).min().expect("points");
    let rest = trace.iter().filter(|point| point.1 < top + 500).count();
    assert_eq!(rest, 1, "one peak, as high as it was");
}

#[test]
fn gaps_are_gaps() {
    let gap = [(0.0, 1.0), (1.0, 2.0), (2.0, 1.5), (3.0, f64::NAN), (4.0, 2.0), (5.0, 2.5), (6.0, 1.0)];
    assert_eq!(traces(&of(line("", Style::Line, gap)).svg(300, 200)).len(), 2);
    let zero = gap.map(|(x, y)| (x, if y.is_nan() { 0.0 } else { y }));
    let mut plot = of(line("", Style::Line, zero));
    assert_eq!(traces(&plot.svg(300, 200)).len(), 1);
    plot.log_y = true;
    assert_eq!(traces(&plot.svg(300, 200)).len(), 2, "nothing to show of 0 on a logarithmic axis");
}

#[test]
fn without_data_it_says_so() {
    let nothing: [&[(f64, f64)]; 2] = [&[], &[(0.0, f64::NAN), (1.0, f64::INFINITY)]];
    for points in nothing {
        for log_y in [false, true] {
            let plot = Plot { log_y, ..of(line("a", Style::Steps, points.to_vec())) };
            let svg = plot.svg(300, 200);
            assert!(svg.contains("no data\n</text>") && svg.ends_with("</svg>\n"), "{svg}");
        }
    }
    assert!(Plot::default().svg(0, 0).contains("no data"));
}

#[test]
fn ticks_are_round() {
    let labels = |log, round, from: f64, to: f64| {
        let axis = Axis::over(log, round, [from, to].into_iter());
        axis.ticks().iter().map(|(_, label)| label.clone()).collect::<Vec<_>>().join(" ")
    };
    for (log, round, from, to, expected) in [
        (false, true, 3.0, 600.0, "0 200 400 600"),
        (false, true, 0.0, 0.034, "0 0.01 0.02 0.03 0.04"),
        (false, true, -0.02, 0.04, "−0.02 0 0.02 0.04"),
        (false, true, 5.0, 5.0, "0 1 2 3 4 5"),
        (false, true, 0.0, 0.0, "0 0.2 0.4 0.6 0.8 1.0"),
        (false, true, 0.0, 1_100_000.0, "0 0.5 M 1.0 M 1.5 M"),
        (false, true, 0.0, 46_000.0, "0 10 k 20 k 30 k 40 k 50 k"),
        (false, false, 0.0, 86_399.0, "0 20 k 40 k 60 k 80 k"),
        (true, true, 99.0, 1_050.0, "50 100 200 500 1000 2000"),
        (true, true, 0.001, 4000.0, "0.001 0.01 0.1 1 10 100 1000"),
        (true, true, 1e-200, 1.0, "1e-12 1e-10 1e-8 1e-6 0.0001 0.01 1"),
    ] {
        assert_eq!(labels(log, round, from, to), expected, "{from} to {to}");
    }
}

#[test]
fn side_by_side_figures_share_their_axes() {
    let (small, large) = (of(line("a", Style::Line, [(0.0, 1.0), (5.0, 2.0), (7.0, 2.5)])), plot());
    let alone = traces(&small.svg(400, 300));
    let among = traces(&small.svg_among(400, 300, &[&large]));
    let height = |trace: &[(i32, i32)]| trace.iter().map(|p| p.1).max().zip(trace.iter().map(|p| p.1).min());
    let spread = |traces: &[Vec<(i32, i32)>]| height(&traces[0]).map_or(0, |(low, high)| low - high);
    assert!(spread(&alone) > 100 * spread(&among), "{} and {}", spread(&alone), spread(&among));
}

#[test]
fn reference_labels_do_not_lie_upon_each_other() {
    let mut plot = plot();
    plot.h_lines = (0..4).map(|k| (format!("line {k}"), f64::from(k))).collect();
    let svg = plot.svg(560, 280);
    let lines: Vec<&str> = svg.lines().collect();
    let labels = lines.windows(2).filter(|pair| pair[1].starts_with("line ")).map(|pair| pair[0]);
    let ys: Vec<f64> =
        labels.filter_map(|tag| tag.split(" y=\"").nth(1)?.split('"').next()?.parse().ok()).collect();
    assert_eq!(ys.len(), 4, "{svg}");
    assert!(ys.windows(2).all(|pair| pair[1] - pair[0] >= 110.0), "{ys:?}");
    assert!(ys.iter().all(|y| *y < 2500.0), "above the axis' labels: {ys:?}");
}

proptest! {
    /// For any numbers a figure is drawn, and nothing lies outside it.
    #[test]
    fn any_numbers_make_a_figure(
        points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..40),
        levels in prop::collection::vec(any::<f64>(), 0..3),
        (log_x, log_y) in any::<(bool, bool)>(),
        style in prop::sample::select(vec![Style::Line, Style::Steps, Style::Points]),
    ) {
        let plot = Plot {
            log_x,
            log_y,
            h_lines: levels.into_iter().map(|level| ("level".to_string(), level)).collect(),
            ..of(line("a", style, points))
        };
        let svg = plot.svg(300, 200);
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        for (x, y) in polylines(&svg).into_iter().flatten() {
            prop_assert!((0..=3000).contains(&x) && (0..=2000).contains(&y), "{}, {}", x, y);
        }
    }
}
