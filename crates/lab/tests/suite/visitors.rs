//! Visitors of every kind at a real gate: they all get in, once each, and nobody gets in by a ticket that is
//! not good.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_gateway::server::{Server, Source};
use tidegate_lab::dist::Dist;
use tidegate_lab::load::{self, LoadOptions};
use tidegate_lab::origin::{Origin, OriginConfig};
use tidegate_lab::scenario::{Follow, Kind, OriginSpec, PathSpec, Scenario, Step};
use tidegate_settings::{Settings, Unit};

/// Visitors a second that the gate lets in: a third of those who come.
const CAPACITY: f64 = 50.0;

/// Patient, early, late and bad, half of them each.
fn kind(name: &str) -> Kind {
    Kind {
        name: name.into(),
        patience: Dist::Fixed(60.0),
        pause: Dist::Uniform(0.1, 0.3),
        early: 0.5,
        late: 0.5,
        late_by: Dist::Exponential(0.2),
        tamper: 0.5,
        replay: 0.5,
        retries: 0,
        ..Kind::default()
    }
}

fn kinds() -> Vec<Kind> {
    let steps = vec![Step::default(), Step { path: "/next?n={n}".into(), ..Step::default() }];
    vec![
        Kind { steps, ..kind("session") },
        Kind { cookies: false, ..kind("without cookies") },
        Kind { browser: false, ..kind("program") },
        Kind { follow: Follow::Refresh, ..kind("without scripts") },
        Kind { follow: Follow::RetryAfter, browser: false, ..kind("simple program") },
        Kind { follow: Follow::RetryAfter, browser: false, cookies: false, ..kind("simplest program") },
        Kind { follow: Follow::Nothing, ..kind("impatient") },
    ]
}

#[test]
fn everybody_gets_in_once_and_no_attacker_by_the_attack() {
    let quick = PathSpec {
        path: "**".into(),
        demand: vec![(0, Dist::Fixed(0.01))],
        body_bytes: 100,
        ..PathSpec::default()
    };
    let spec = OriginSpec { paths: vec![quick], ..OriginSpec::default() };
    let origin = Origin::start(OriginConfig::new(spec)).expect("origin");
    let state = std::env::temp_dir().join(format!("tidegate-visitors-{}", std::process::id()));
    std::fs::create_dir_all(&state).expect("a directory");
    let mut settings = Settings::default();
    settings.origin.replicas = vec![origin.addr().to_string()];
    settings.capacity.rate = CAPACITY;
    settings.listen.admin = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.listen.http = settings.listen.admin.into();
    settings.room.state_dir = Some(state.clone());
    // With sessions a visitor who shows its used ticket again goes on with its session.
    settings.room.unit = Unit::Request;
    let gate = Server::start(settings, Source::default()).expect("gate");

    let visitors = kinds();
    let crowd = Scenario::short("", 3.0 * CAPACITY, Duration::from_millis(1_500));
    let scenario = Scenario { seed: 3, visitors, deadline: Some(Duration::from_secs(60)), ..crowd };
    let options = LoadOptions { url: Some(format!("http://{}", gate.http())), ..LoadOptions::default() };
    let played = load::run(&scenario, &options, |_, _| {}).expect("a run");
    gate.stop();
    let _ = std::fs::remove_dir_all(state);

    let tally = &played.tally;
    assert_eq!(played.partial, None);
    assert!(tally.offered > 150, "{tally:?}");
    assert_eq!((tally.done, tally.failures.total()), (tally.offered, 0), "{tally:?}");
    assert_eq!(origin.stats().served, tally.served, "what the service did is what visitors got");
    assert!(tally.attacks_sent > 50, "{tally:?}");
    assert_eq!(tally.attacks_let_in, 0, "{tally:?}");
}
