//! The crowd keeps its promises: sorted, repeatable, at the rate its phases say.

use super::*;
use crate::scenario::Shape;

fn phases(process: Process, phases: Vec<(Shape, u64)>) -> Arrivals {
    let phases = phases
        .into_iter()
        .map(|(rate, secs)| Phase { rate, lasts: Duration::from_secs(secs), mix: Vec::new() })
        .collect();
    Arrivals::Phases { process, phases, repeat: 1 }
}

#[test]
fn same_seed_same_crowd() {
    let arrivals = phases(Process::Poisson, vec![(Shape::Flat(1000.0), 4)]);
    let crowd = |seed| Crowd::new(seed, &arrivals, &[1.0]).collect::<Vec<_>>();
    assert_eq!(crowd(7), crowd(7));
    assert_ne!(crowd(7), crowd(8));
    assert!((crowd(7).len() as f64 - 4000.0).abs() < 5.0 * 4000f64.sqrt());
}
