//! A short slice of the differential runs; the long one is `examples/differential.rs`.

#[path = "differential/mod.rs"]
mod differential;

use differential::{Subject, run};

fn slice(subject: Subject) {
    let counts = run(subject, 60_000, 20, 0x7469_6465);
    println!("{counts}");
    // Enough must be accepted and refused for the test to mean something.
    assert!(counts.both_accept > 6_000 && counts.both_refuse > 6_000, "{counts}");
}

#[test]
fn requests() {
    slice(Subject::Requests);
}

#[test]
fn responses() {
    slice(Subject::Responses);
}

#[test]
fn contents() {
    slice(Subject::Contents);
}
