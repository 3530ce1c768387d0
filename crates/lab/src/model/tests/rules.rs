//! The model's rules, one by one.

use std::collections::BTreeMap;

use crate::model::*;
use crate::scenario::Stage;

pub(super) const MS: u64 = 1000;

pub(super) fn pool(workers: u32, service_ms: u64, backlog: u32) -> OriginSpec {
    OriginSpec::pool(workers, Duration::from_millis(service_ms), backlog, 0.0)
}

/// `app` with as many servers as workers, `db` with `servers`; fixed demands in milliseconds.
pub(super) fn tiers(workers: u32, app_ms: f64, servers: u32, db_ms: f64) -> OriginSpec {
    let demand = vec![(0, Dist::Fixed(app_ms / 1e3)), (1, Dist::Fixed(db_ms / 1e3))];
    OriginSpec {
        stages: vec![Stage::new("app", workers), Stage::new("db", servers)],
        paths: vec![PathSpec { path: "/**".into(), demand, body_bytes: 0, ..PathSpec::default() }],
        ..pool(workers, 0, 1000)
    }
}

/// Instants at which requests end until `now_us`, by id.
pub(super) fn ends(model: &mut Model, now_us: u64) -> Vec<(u64, u64)> {
    let mut ends = Vec::new();
    model.advance(now_us, &mut |done| ends.push((done.id, done.at_us)));
    ends
}

#[test]
fn contention_follows_the_formula() {
    for (present, expected) in [(0, 1.0), (1, 1.0), (10, 1.0), (20, 1.01), (30, 1.04), (138, 2.6384)] {
        let factor = contention_factor(0.01, 10, present);
        assert!((factor - expected).abs() < 1e-12, "n = {present}: {factor}");
    }
    assert_eq!(contention_factor(0.0, 10, 10_000), 1.0);
}

#[test]
fn capacity_is_that_of_the_bottleneck() {
    assert_eq!(pool(10, 100, 0).capacity(0), 100.0);
    assert_eq!(tiers(2, 10.0, 1, 40.0).capacity(0), 25.0, "the database");
    assert_eq!(OriginSpec { replicas: 3, ..tiers(2, 10.0, 8, 40.0) }.capacity(0), 120.0, "the workers");
    assert_eq!(tiers(2, 0.0, 1, 0.0).capacity(0), f64::INFINITY);
}

#[test]
fn waves_follow_one_another_without_a_gap() {
    let spec = OriginSpec::pool(10, Duration::from_micros(33_300), 128, 0.0);
    let mut model = Model::new(&spec, 1);
    for id in 0..130 {
        model.submit(id, 0, 0).expect("room");
    }
    // Looked at once, late: the instants are the model's, not the observer's.
    let expected: Vec<_> = (0..130).map(|id| (id, 33_300 * (id / 10 + 1))).collect();
    assert_eq!(ends(&mut model, 1_000_000), expected);
    assert_eq!(model.stages()[0].total_busy_us(), 130 * 33_300);
}

#[test]
fn three_times_the_workers_wait_their_turn_and_contend() {
    // Of 30 at once: ten start unhindered (nobody was there before them); as each ends, one of 29 - k present
    // takes its place: the k-th of the second wave ends at s0 + s(29 - k), so the last one of it ends first.
    let spec = OriginSpec { contention: 0.5, ..pool(10, 100, 128) };
    let mut model = Model::new(&spec, 1);
    for id in 0..30 {
        model.submit(id, 0, 0).expect("room");
    }
    let ends: BTreeMap<u64, u64> = ends(&mut model, u64::MAX / 2).into_iter().collect();
    for k in 0..20 {
        let factor = if k < 10 { 0.0 } else { contention_factor(0.5, 10, 29 - (k as u32 - 10)) };
        let expected = 100_000 + (100_000.0 * factor).round() as u64;
        assert!(ends[&k].abs_diff(expected) <= 1, "{k}: {}, expected {expected}", ends[&k]);
    }
    assert!((20..30).all(|k| ends[&k] > 300 * MS), "contention costs: {ends:?}");
}

#[test]
fn a_full_backlog_refuses_and_recovers() {
    let mut model = Model::new(&pool(2, 100, 3), 1);
    for id in 0..5 {
        model.submit(id, 0, 0).expect("2 in service, 3 waiting");
    }
    assert_eq!(model.submit(5, 0, 0), Err(Full));
    assert_eq!(model.submit(6, 0, 0), Err(Full));
    let stats = model.stats();
    assert_eq!((stats.in_service, stats.queued, stats.refused, stats.peak), (2, 3, 2, 5));
    ends(&mut model, 100 * MS);
    assert!(model.submit(7, 0, 100 * MS).is_ok(), "there is room again");
}

#[test]
fn work_for_visitors_who_left_is_done_and_wasted() {
    let mut model = Model::new(&pool(1, 100, 128), 1);
    let tickets: Vec<_> = (0..3).map(|id| model.submit(id, 0, 0).expect("room")).collect();
    assert!(model.leave(tickets[0], 10) && model.leave(tickets[1], 10));
    let mut wasted = Vec::new();
    model.advance(300 * MS, &mut |done| wasted.push(done.wasted));
    assert_eq!(wasted, [true, true, false]);
    let stats = model.stats();
    assert_eq!((stats.served, stats.wasted, stats.refused), (1, 2, 0));
    assert!(!model.leave(tickets[2], 300 * MS), "it is over");
    let reused = model.submit(9, 0, 300 * MS).expect("room");
    assert_eq!(reused.slot, tickets[2].slot, "the slot is used again");
    assert!(!model.leave(tickets[2], 300 * MS), "an old ticket does not name the new request");
    ends(&mut model, 400 * MS);
    assert_eq!(model.stats().served, 2);
}

#[test]
fn a_service_that_notices_leavers_turns_to_the_next() {
    let spec = OriginSpec { notices_leavers: true, ..tiers(2, 10.0, 1, 40.0) };
    let mut model = Model::new(&spec, 1);
    let tickets: Vec<_> = (0..5).map(|id| model.submit(id, 0, 0).expect("room")).collect();
    ends(&mut model, 20 * MS);
    // 0 at the database until 50 ms, 1 in line for it, 2 to 4 in the backlog.
    assert!(!model.leave(tickets[3], 20 * MS), "from the middle of the backlog");
    assert!(!model.leave(tickets[1], 20 * MS), "from the line: its worker takes 2");
    assert!(!model.leave(tickets[0], 25 * MS), "from the server: its worker takes 4");
    assert_eq!(ends(&mut model, 1000 * MS), [(2, 70 * MS), (4, 110 * MS)]);
    let stats = model.stats();
    assert_eq!((stats.served, stats.abandoned, stats.wasted), (2, 3, 0));
    assert_eq!(model.stages()[1].total_busy_us(), 15 * MS + 2 * 40 * MS);
}

#[test]
fn a_worker_is_held_through_all_stages() {
    // Two workers, one database server of 40 ms: the database is the bottleneck, whatever waits.
    let mut model = Model::new(&tiers(2, 10.0, 1, 40.0), 1);
    for id in 0..6 {
        model.submit(id, 0, 0).expect("room");
    }
    let expected: Vec<_> = (0..6).map(|id| (id, (10 + 40 * (id + 1)) * MS)).collect();
    assert_eq!(ends(&mut model, 1000 * MS), expected);
    // One worker is idle at the database while the application has nothing to do.
    let mut model = Model::new(&tiers(1, 10.0, 1, 40.0), 1);
    model.submit(0, 0, 0).expect("room");
    model.submit(1, 0, 0).expect("room");
    assert_eq!(ends(&mut model, 1000 * MS), [(0, 50 * MS), (1, 100 * MS)]);
    let [app, db] = model.stages().try_into().expect("two stages");
    assert_eq!((app.total_busy_us(), db.total_busy_us()), (20 * MS, 80 * MS));
    assert_eq!((app.idle_us[0], db.idle_us[0]), (980 * MS, 920 * MS));
}

#[test]
fn a_change_of_speed_applies_to_work_under_way() {
    let mut model = Model::new(&pool(1, 100, 128), 1);
    model.submit(0, 0, 0).expect("room");
    model.submit(1, 0, 0).expect("room");
    model.set_speed(0.5, 50 * MS);
    assert_eq!(model.next_event(), Some(150 * MS), "half was left; it takes twice as long");
    assert_eq!(ends(&mut model, 200 * MS), [(0, 150 * MS)]);
    model.set_speed(3.0, 200 * MS);
    assert_eq!(ends(&mut model, 300 * MS), [(1, 225 * MS)]);
    let stages = model.stages();
    assert_eq!((stages[0].total_busy_us(), stages[0].idle_us[0]), (225 * MS, 75 * MS));
}

#[test]
fn workers_come_and_go() {
    let mut model = Model::new(&pool(2, 100, 128), 1);
    for id in 0..8 {
        model.submit(id, 0, 0).expect("room");
    }
    model.set_workers(4, 10 * MS);
    assert_eq!(model.stats().in_service, 4, "the new ones start at once");
    model.set_workers(1, 20 * MS);
    // 0 to 3 end what they have; then one after another.
    let expected = [(0, 100), (1, 100), (2, 110), (3, 110), (4, 210), (5, 310)].map(|(id, ms)| (id, ms * MS));
    assert_eq!(ends(&mut model, 310 * MS), expected);
    let stats = model.stats();
    assert_eq!((stats.in_service, stats.queued), (1, 1));
    assert_eq!(model.stages()[0].total_busy_us(), 6 * 100 * MS);
    model.set_workers(0, 320 * MS);
    ends(&mut model, 1000 * MS);
    assert_eq!(model.stats().queued, 1, "nobody works");
    assert_eq!(model.next_event(), None);
}

#[test]
fn a_crash_loses_everything_and_the_next_request_finds_it_idle() {
    let mut model = Model::new(&tiers(2, 10.0, 1, 40.0), 1);
    for id in 0..5 {
        model.submit(id, 0, 0).expect("room");
    }
    ends(&mut model, 50 * MS);
    let mut lost = model.crash(60 * MS);
    lost.sort_unstable();
    assert_eq!(lost, [1, 2, 3, 4]);
    assert_eq!((model.next_event(), model.stats().present(), model.stats().lost), (None, 0, 4));
    assert_eq!(model.stages()[1].total_busy_us(), 50 * MS);
    model.submit(9, 0, 60 * MS).expect("room");
    assert_eq!(ends(&mut model, 1000 * MS), [(9, 110 * MS)]);
}

#[test]
fn no_demand_and_endless_demand() {
    let mut spec = pool(2, 100, 0);
    spec.paths.insert(
        0,
        PathSpec { path: "/free".into(), demand: Vec::new(), body_bytes: 0, ..PathSpec::default() },
    );
    spec.paths.insert(
        1,
        PathSpec {
            path: "/never".into(),
            demand: vec![(0, Dist::Never)],
            body_bytes: 0,
            ..PathSpec::default()
        },
    );
    let paths = Paths::compile(&spec.paths).expect("globs");
    let mut model = Model::new(&spec, 1);
    model.submit(0, paths.index("/never?q=1"), 5).expect("a worker");
    assert_eq!(model.next_event(), None);
    model.submit(1, paths.index("/free"), 5).expect("a worker");
    assert_eq!(ends(&mut model, 5), [(1, 5)]);
    model.submit(2, paths.index("/anything/else"), 5).expect("a worker");
    assert_eq!(ends(&mut model, u64::MAX), [(2, 100 * MS + 5)]);
    assert_eq!(model.stats().in_service, 1, "it never ends");
}

#[test]
fn paths_are_matched_as_the_gate_matches_them() {
    let entry =
        |path: &str| PathSpec { path: path.into(), demand: Vec::new(), body_bytes: 0, ..PathSpec::default() };
    let spec = OriginSpec {
        paths: ["/search*", "/item/**", "/a/*/c", "**"].map(entry).into(),
        ..OriginSpec::pool(1, Duration::ZERO, 0, 0.0)
    };
    for (path, expected) in [
        ("/search?q=/item/", 0),
        ("/searching", 0),
        ("/search/deep", 3),
        ("/item", 1),
        ("/item/7/bids", 1),
        ("/a/b/c", 2),
        ("/%61/b/c", 2),
        ("/", 3),
        ("", 3),
    ] {
        assert_eq!(path_index(&spec, path), expected, "{path:?}");
    }
    // More entries than the classifier has classes.
    let many: Vec<_> = (0..600).map(|i| entry(&format!("/{i}"))).chain([entry("**")]).collect();
    let paths = Paths::compile(&many).expect("globs");
    let found = ["/0", "/254", "/255", "/599", "/600"].map(|path| paths.index(path));
    assert_eq!(found, [0, 254, 255, 599, 600]);
    let mistake = Paths::compile(&[entry("/ok"), entry("no-slash")]).expect_err("no glob of a path");
    assert_eq!((mistake.class, mistake.got.as_str()), (1, "no-slash"));
}
