//! From points to strokes: steps, gaps, and no more points than a reader can see.
//!
//! Of a long series, each pixel column keeps its first, lowest, highest and last point: the drawing looks as
//! if all points were in it. Taking every n-th point was rejected, because it loses the peaks, and means,
//! because they lower them.

type Point = (f64, f64);

/// Where the last of these steps ends: it holds as long as the one before, one unit if it is the only one.
pub(super) fn held_until(points: &[Point]) -> Option<f64> {
    match points {
        [] => None,
        [(x, _)] => Some(x + 1.0),
        [.., (before, _), (x, _)] => Some(x + (x - before)),
    }
}

pub(super) fn steps(points: &[Point]) -> Vec<Point> {
    let ends = points.iter().skip(1).map(|point| point.0).chain(held_until(points));
    points.iter().zip(ends).flat_map(|((x, y), end)| [(*x, *y), (end, *y)]).collect()
}

/// Strokes without gaps, thinned to what pixels can show. `None` is a gap.
pub(super) fn strokes(places: impl Iterator<Item = Option<Point>>) -> Vec<Vec<Point>> {
    let mut strokes = vec![Vec::new()];
    for place in places {
        match (place, strokes.last_mut()) {
            (Some(place), Some(stroke)) => stroke.push(place),
            _ => strokes.push(Vec::new()),
        }
    }
    strokes.retain(|stroke| !stroke.is_empty());
    strokes.into_iter().map(|stroke| thin(&stroke)).collect()
}

/// Markers, one where several would lie upon each other.
pub(super) fn dots(places: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut seen = std::collections::HashSet::new();
    places.filter(|(x, y)| seen.insert((x.round() as i32, y.round() as i32))).collect()
}

fn thin(stroke: &[Point]) -> Vec<Point> {
    let mut out: Vec<Point> = Vec::new();
    for column in stroke.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by_y = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let lowest = (0..column.len()).min_by(by_y).unwrap_or(0);
        let highest = (0..column.len()).max_by(by_y).unwrap_or(0);
        let mut kept = [0, lowest, highest, column.len() - 1];
        kept.sort_unstable();
        out.extend(kept.map(|at| column[at]));
    }
    out.dedup();
    straighten(out)
}

/// Leaves out the middle of three points on a horizontal line: most of a quiet series of steps.
fn straighten(points: Vec<Point>) -> Vec<Point> {
    let mut out: Vec<Point> = Vec::with_capacity(points.len());
    for point in points {
        if let [.., a, b] = out.as_slice()
            && a.1 == b.1
            && b.1 == point.1
            && a.0 <= b.0
            && b.0 <= point.0
        {
            out.pop();
        }
        out.push(point);
    }
    out
}
