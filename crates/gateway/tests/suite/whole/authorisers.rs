//! External authorisers (WAC 3.2 f).

use std::sync::Arc;

use tidegate_core::classify::Paths;
use tidegate_core::policies::{Action, ActivePolicy, AuthoriserId, Policy, Scope};

use crate::whole::harness::{Gate, Latch, Origin, Scripted, admin, ask, get, reply, until};
use crate::whole::policies::{order, publish};

fn gate(origin: &Origin, application: &Scripted, more: &str) -> Gate {
    let gate = Gate::start(
        origin,
        &format!(
            "[origin]\nreplicas = [\"ORIGIN\"]\n[[application]]\nname = \"fraud\"\nurl = \"http://{}/verdict\"\nttl = \"1h\"\ndeadline = \"20s\"\n{more}",
            application.address
        ),
    );
    let urls = Some(Paths::compile(["/a/**"]).unwrap());
    let ask = order(Policy::Ask(AuthoriserId(0)), Action::Answer { status: 403 });
    publish(&gate, vec![ActivePolicy { scope: Scope { urls, ..Scope::default() }, ..ask }]);
    gate
}

fn status(gate: &Gate, target: &str, cookies: &str) -> u16 {
    get(gate.http, target, cookies).split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_status_is_the_verdict_and_it_is_kept_by_key() {
    let application = Scripted::start(|head, _, stream| {
        assert!(head.starts_with("GET /verdict HTTP/1.1\r\n"), "{head}");
        let key = head.lines().find_map(|line| line.strip_prefix("cookie: sid="));
        match key {
            Some("good") => reply(stream, "204 No Content", "", ""),
            Some("bad") => reply(stream, "403 No", "", ""),
            Some("sick") => reply(stream, "500 Sick", "", ""),
            _ => reply(stream, "401 Who", "", head),
        }
    });
    for (fallback, of_sick) in [("allow", 200), ("refuse", 403)] {
        let origin = Origin::start();
        let more = format!("key = \"cookie\"\ncookie = \"sid\"\nfallback = \"{fallback}\"\n");
        let gate = gate(&origin, &application, &more);
        let before = application.came();
        for (cookie, wanted) in [
            ("sid=good", 200),
            ("sid=bad", 403),
            ("sid=good", 200),
            ("x=y; sid=bad", 403),
            ("", 403),
            ("", 403),
        ] {
            assert_eq!(status(&gate, "/a/", cookie), wanted, "{cookie:?}");
        }
        assert_eq!(application.came() - before, 3, "one question a key");
        assert_eq!(status(&gate, "/a/", "sid=sick"), of_sick, "no verdict");
        assert_eq!(status(&gate, "/b", "sid=bad"), 200, "not asked");
        let metrics = admin(&gate, "/metrics");
        for (verdict, n) in [("yes", 1), ("no", 2), ("none", 1)] {
            let line = format!(
                "tidegate_application_verdicts_total{{application=\"fraud\",verdict=\"{verdict}\"}} {n}"
            );
            assert!(metrics.contains(&line), "{line}");
        }
    }
}

#[test]
fn requests_wait_for_a_query_under_way_with_their_own_key_only() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let application = Scripted::start(move |head, _, stream| {
        assert!(head.contains("tidegate-url: shop.example/a/x\r\n"), "{head}");
        held.wait();
        reply(stream, "200 OK", "", "");
    });
    let origin = Origin::start();
    let gate = gate(&origin, &application, "key = \"url\"\n");
    let to = gate.http;
    let asking: Vec<_> = (0..8).map(|_| std::thread::spawn(move || get(to, "/a/x", ""))).collect();
    until(|| application.came().to_string(), |n| n == "1");
    assert_eq!(status(&gate, "/b", ""), 200, "other requests are served meanwhile");
    latch.open();
    assert!(asking.into_iter().all(|one| one.join().unwrap().ends_with("served")));
    assert_eq!(application.came(), 1);
}

#[test]
fn without_an_answer_of_the_authoriser_the_fallback_decides() {
    let silent = Scripted::start(|_, _, stream| {
        let _ = std::io::Read::read(stream, &mut [0]); // until the gate gives up
    });
    let origin = Origin::start();
    for (fallback, wanted) in [("allow", 200), ("refuse", 403)] {
        let short = Gate::start(
            &origin,
            &format!(
                "[origin]\nreplicas = [\"ORIGIN\"]\n[[application]]\nname = \"fraud\"\nurl = \"http://{}\"\ndeadline = \"50ms\"\nfallback = \"{fallback}\"\n",
                silent.address
            ),
        );
        publish(&short, vec![order(Policy::Ask(AuthoriserId(0)), Action::Answer { status: 403 })]);
        assert_eq!(status(&short, "/a/", ""), wanted, "silent, {fallback}");
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let gone = Gate::start(
            &origin,
            &format!(
                "[origin]\nreplicas = [\"ORIGIN\"]\n[[application]]\nname = \"fraud\"\nurl = \"http://{gone}\"\nfallback = \"{fallback}\"\n"
            ),
        );
        publish(&gone, vec![order(Policy::Ask(AuthoriserId(0)), Action::Answer { status: 403 })]);
        assert_eq!(status(&gone, "/a/", ""), wanted, "gone, {fallback}");
    }
}

#[test]
fn a_verdict_may_name_a_tier_or_a_class_and_the_visitor_may_not() {
    let application = Scripted::start(|head, _, stream| {
        let key = head.lines().find_map(|line| line.strip_prefix("cookie: sid=")).unwrap_or_default();
        let fields = match key {
            "gold" => "Tidegate-Tier: gold\r\n",
            "slow" => "Tidegate-Class: slow\r\n",
            "both" => "Tidegate-Tier: gold\r\nTidegate-Class: slow\r\n",
            "typo" => "Tidegate-Tier: glod\r\n",
            _ => "",
        };
        // A refusal says nothing of who may enter.
        let status = if key == "bad" { "403 No" } else { "204 No Content" };
        reply(stream, status, fields, "");
    });
    let origin = Origin::start();
    let more = "key = \"cookie\"\ncookie = \"sid\"\n[[class]]\nname = \"slow\"\nmatch = { path = \"/slow\" }\n\
                [[class]]\nname = \"fast\"\nmatch = { path = \"/fast\" }\n\
                [[tier]]\nname = \"gold\"\nclient = \"192.0.2.0/24\"\nclass = \"fast\"\n";
    let gate = gate(&origin, &application, more);
    let served = || {
        let state = gate.admin("/v1/state");
        let of = |list: &str, name: &str| {
            let all = state[list].as_array().expect("a list");
            let one = all.iter().find(|one| one["name"] == name).expect("a name");
            one["served"].as_u64().expect("a number")
        };
        [
            of("tiers", "gold"),
            of("tiers", "default"),
            of("classes", "fast"),
            of("classes", "slow"),
            of("classes", "default"),
        ]
    };
    // cookie, fields of the visitor's own, and what is then counted: gold, default; fast, slow, default
    let table = [
        ("gold", "", [1, 0, 1, 0, 0]),
        ("slow", "", [1, 1, 1, 1, 0]),
        ("both", "", [2, 1, 1, 2, 0]),
        ("typo", "", [2, 2, 1, 2, 1]),
        ("plain", "Tidegate-Tier: gold\r\nTidegate-Class: slow\r\n", [2, 3, 1, 2, 2]),
    ];
    for (cookie, own, wanted) in table {
        let request =
            format!("GET /a/ HTTP/1.1\r\nHost: h\r\nCookie: sid={cookie}\r\n{own}Connection: close\r\n\r\n");
        assert!(ask(gate.http, &request).ends_with("served"), "{cookie}");
        // The figures are those of the last second.
        until(|| format!("{:?}", served()), |seen| seen == format!("{wanted:?}"));
    }
    assert_eq!(status(&gate, "/a/", "sid=bad"), 403);
    let line = "tidegate_application_verdicts_total{application=\"fraud\",verdict=\"unknown-name\"} 1\n";
    assert!(admin(&gate, "/metrics").contains(line));
}
