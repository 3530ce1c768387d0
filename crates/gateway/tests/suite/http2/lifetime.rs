//! How a connection ends: idle, by the shutdown, by policies; and what becomes of requests under way.

use h2::Reason;
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;

use super::frames::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Raw, frame};
use super::harness::{Client, PLAIN, get, read, reset_of, run, until};
use crate::whole::harness::{Gate, Origin};
use crate::whole::policies::{publish, refuse};

#[test]
fn a_connection_without_requests_is_closed_in_time() {
    let origin = Origin::start();
    let times = "[limits]\nidle_timeout = \"100ms\"\nheader_timeout = \"100ms\"\n";
    let gate = Gate::start(&origin, &format!("{PLAIN}{times}"));
    // Without any, after one, and in the middle of a head.
    let mut silent = Raw::connect(gate.http);
    assert_eq!(silent.goaway(), Some(0));
    let mut served = Raw::connect(gate.http);
    served.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")));
    assert!(served.wait_for(HEADERS).is_some());
    assert_eq!(served.goaway(), Some(0));
    assert_eq!(gate.count(Event::IdleTimeout), 2);
    let mut half = Raw::connect(gate.http);
    half.send(&frame(HEADERS, END_STREAM, 1, &frames::get("/")));
    assert_eq!(half.goaway(), Some(0));
    assert_eq!(gate.count(Event::HeaderTimeout) + gate.count(Event::IdleTimeout), 3);
    // Only the preface, and not all of it.
    let mut begun = crate::whole::harness::connect(gate.http);
    std::io::Write::write_all(&mut begun, &frames::PREFACE[..10]).unwrap();
    assert!(Raw(begun).next().is_none());
}

#[test]
fn a_drain_tells_visitors_to_go_and_lets_requests_end() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    run(async {
        let mut idle = Client::connect(gate.http).await;
        assert_eq!(idle.get("/").await.text(), "served");
        let mut busy = Client::connect(gate.http).await;
        let held = busy.start(get("/hold")).await;
        origin.holds();
        gate.server().control().drain();
        idle.connection.await.unwrap().unwrap();
        // GOAWAY has come: no new request.
        until(|| busy.send.clone().send_request(get("/"), true).is_err() || busy.connection.is_finished())
            .await;
        origin.release();
        assert_eq!(read(held.await.unwrap()).await.unwrap().text(), "served");
        busy.connection.await.unwrap().unwrap();
    });
}

#[test]
fn a_connection_that_was_idle_for_long_may_still_ask_when_the_drain_comes() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let mut idle = Raw::connect(gate.http);
    idle.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")));
    assert!(idle.wait_for(HEADERS).is_some());
    let mut busy = Raw::connect(gate.http);
    busy.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/hold")));
    origin.holds();
    // For longer than a connection that is ending may take.
    let now = || gate.server().shared().clock.now();
    let begun = now();
    while now().since(begun).as_millis() < 2_100 {
        assert!(crate::whole::harness::get(gate.http, "/", "").ends_with("served"));
    }
    gate.server().control().drain();
    assert!(idle.wait_for(GOAWAY).is_some());
    // As from a visitor whom the GOAWAY has not reached yet.
    idle.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &frames::get("/")));
    assert!(idle.wait_for(HEADERS).is_some(), "the request is answered");
    origin.release();
}

#[test]
fn policies_act_on_streams_and_connections() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    run(async {
        // An answer under way is cut off; its connection stays.
        let mut client = Client::connect(gate.http).await;
        let held = client.start(get("/hold")).await;
        origin.holds();
        publish(&gate, vec![refuse(Action::Stop)]);
        assert_eq!(reset_of(held).await, Some(Reason::CANCEL));
        publish(&gate, Vec::new());
        assert_eq!(client.get("/").await.text(), "served");
        // The same after its head.
        let drip = client.start(get("/drip")).await.await.unwrap();
        publish(&gate, vec![refuse(Action::Stop)]);
        assert_eq!(read(drip).await.unwrap_err().reason(), Some(Reason::CANCEL));
        // Ended: idle connections at once, others after their answers.
        publish(&gate, Vec::new());
        let drip = client.start(get("/drip")).await.await.unwrap();
        let mut idle = Client::connect(gate.http).await;
        assert_eq!(idle.get("/").await.text(), "served");
        publish(&gate, vec![refuse(Action::End)]);
        idle.connection.await.unwrap().unwrap();
        assert!(!client.connection.is_finished());
        drop(drip);
        client.connection.await.unwrap().unwrap();
        let mut late = Client::connect(gate.http).await;
        let refused = late.start(get("/")).await.await.unwrap();
        assert_eq!(refused.status(), 503);
        late.connection.await.unwrap().unwrap();
    });
    origin.release();
}

#[test]
fn a_request_is_turned_away_without_an_answer() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    run(async {
        let scoped = |action| {
            // For a path, so that connections are read.
            let mut policy = refuse(action);
            policy.scope.urls = Some(tidegate_core::classify::Paths::compile(["/a"]).unwrap());
            policy
        };
        publish(&gate, vec![scoped(Action::Close)]);
        let mut client = Client::connect(gate.http).await;
        assert_eq!(reset_of(client.start(get("/a")).await).await, Some(Reason::CANCEL));
        assert_eq!(client.get("/b").await.text(), "served");
        publish(&gate, vec![scoped(Action::Reset)]);
        let response = client.start(get("/a")).await;
        assert!(response.await.unwrap_err().is_io());
    });
}
