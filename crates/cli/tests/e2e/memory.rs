//! The gate needs no memory for a hundred thousand visitors who wait.

use super::harness::{Config, Gate};
use super::http::Client;
use super::origin::Origin;
use super::visitor::is_wait;

const WAITING: usize = 100_000;
const CONNECTIONS: usize = 50;
/// Allowed growth: buffers of connections and slack of the allocator, but nothing for each visitor.
const ALLOWED: u64 = 8 << 20;

#[test]
fn a_hundred_thousand_waiting_visitors_cost_no_memory() {
    let origin = Origin::answering("welcome");
    let config = Config::waiting(&[origin.address()], 50.0).text("room.max_wait", "2h");
    let gate = Gate::start(config);
    let idle = gate.rss();
    let address = gate.http();
    let askers: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address).unwrap();
                let mut waiting = 0;
                while waiting < WAITING / CONNECTIONS {
                    // Without cookies, every request is of a new visitor.
                    let answer = client.get("/shop", "Accept: application/json\r\n").unwrap();
                    assert!(answer.status() == 200 || is_wait(&answer), "{answer:?}");
                    waiting += usize::from(is_wait(&answer));
                }
                client
            })
        })
        .collect();
    // The connections stay open, so that they count.
    let open: Vec<Client> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
    let rss = gate.rss();
    assert!(rss <= idle + ALLOWED, "memory grew from {idle} to {rss} bytes with {} connections", open.len());
    let state = gate.admin("GET", "/v1/state", "");
    assert_eq!(state.status(), 200);
}
