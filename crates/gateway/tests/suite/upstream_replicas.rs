//! Several replicas: one dead, all dead, checked, replaced.

use super::upstream_support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http_body_util::BodyExt;
use tidegate_gateway::control::health;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::dispatch::{DispatchError, Dispatcher};
use tokio::io::AsyncWriteExt;
use upstream_support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_dead_replica_causes_no_error() {
    worker(async {
        let (origin, dead) = (Origin::answering(OK).await, dead_address().await);
        let d = dispatcher(&[dead, origin.address]);
        let left = Rc::new(Cell::new(1000));
        let visitors: Vec<_> = (0..20)
            .map(|_| {
                let (d, left) = (d.clone(), left.clone());
                tokio::task::spawn_local(async move {
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        // Nothing was sent to the replica that refused, so POST is safe too.
                        let req = if left.get() % 2 == 0 { get() } else { post("x") };
                        assert_eq!(fetch(&d, req).await.unwrap(), (200, "ok".into()));
                    }
                })
            })
            .collect();
        for visitor in visitors {
            visitor.await.unwrap();
        }
        let tried = d.stats().connect_failed.load(Relaxed);
        assert!((1..100).contains(&tried), "ejected after a few failures, not tried {tried} times");
    });
}

#[test]
fn a_request_lost_on_a_fresh_connection_is_retried_once_elsewhere_within_the_budget() {
    worker(async {
        let origin = Origin::answering(OK).await;
        let lossy = || {
            Origin::start(|_, mut stream| async move {
                read_head(&mut stream).await;
                reset(stream);
            })
        };
        let (a, b) = (lossy().await, lossy().await);
        let no_eject = tidegate_settings::Eject { failures: 0, for_: ms(1) };
        let base = tidegate_settings::Origin { eject: no_eject, ..settings_for(&[a.address, b.address]) };

        let d = with(base.clone());
        let e = send(&d, get()).await.unwrap_err();
        assert!(matches!(e, DispatchError::Reset(_)), "{e:?}");
        assert_eq!((a.accepted.get(), b.accepted.get()), (1, 1), "another replica, and not a third time");

        let none = with(tidegate_settings::Origin { retry_budget: 0.0, ..base.clone() });
        send(&none, get()).await.unwrap_err();
        assert_eq!(a.accepted.get() + b.accepted.get(), 3);
        assert_eq!(none.stats().retry_budget_empty.load(Relaxed), 1);

        let half = with(tidegate_settings::Origin {
            replicas: settings_for(&[a.address, origin.address]).replicas,
            ..base
        });
        for _ in 0..100 {
            assert_eq!(fetch(&half, get()).await.unwrap().0, 200);
        }
        let posts = a.accepted.get();
        let mut lost = 0;
        for _ in 0..20 {
            lost += usize::from(send(&half, post("x")).await.is_err());
        }
        assert_eq!(a.accepted.get() - posts, lost, "a POST that may have arrived is not repeated");
    });
}

#[test]
fn all_replicas_down_is_an_error_of_its_own() {
    worker(async {
        let d = dispatcher(&[]);
        assert!(matches!(send(&d, get()).await.unwrap_err(), DispatchError::NoReplica));
        let settings = settings_for(&[dead_address().await]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        for _ in 0..20 {
            // It is ejected, but there is no other.
            let e = send(&d, get()).await.unwrap_err();
            assert!(matches!(e, DispatchError::ConnectFailed(_)), "{e:?}");
        }
        replicas.list()[0].set_healthy(false);
        assert!(matches!(send(&d, get()).await.unwrap_err(), DispatchError::NoReplica));
    });
}

#[test]
fn health_checks_take_a_replica_out_and_back() {
    worker(async {
        let status = Rc::new(RefCell::new("200 OK"));
        let asked = Rc::new(RefCell::new(String::new()));
        let (shown, heard) = (status.clone(), asked.clone());
        let origin = Origin::start(move |_, mut stream| {
            let (shown, heard) = (shown.clone(), heard.clone());
            async move {
                *heard.borrow_mut() = read_head(&mut stream).await.unwrap_or_default();
                let head = format!("HTTP/1.1 {}\r\ncontent-length: 0\r\n\r\n", shown.borrow());
                drop(stream.write_all(head.as_bytes()).await);
            }
        })
        .await;
        let replicas = Replicas::new(&settings_for(&[origin.address]));
        let health = tidegate_settings::Health {
            path: "/up".into(),
            every: ms(5),
            timeout: ms(5000),
            rise: 2,
            fall: 3,
        };
        let task = tokio::spawn(health::run(replicas.clone(), health, Default::default()));
        let replica = replicas.list()[0].clone();
        *status.borrow_mut() = "503 Service Unavailable";
        until(|| !replica.is_healthy()).await;
        assert_eq!(replicas.usable(), (0, 1));
        *status.borrow_mut() = "302 Found";
        until(|| replica.is_healthy()).await;
        assert!(asked.borrow().starts_with("get /up http/1.1\r\n"));
        origin.stop();
        until(|| !replica.is_healthy()).await;
        task.abort();
    });
}

#[test]
fn reload_moves_requests_to_the_new_replicas() {
    worker(async {
        let (old, new) = (Origin::answering(OK).await, Origin::answering(OK).await);
        let mut settings = settings_for(&[old.address]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let held = send(&d, get()).await.unwrap();
        settings.replicas = vec![new.address.to_string()];
        replicas.reconfigure(&settings);
        d.reconfigure(&settings);
        assert_eq!(held.into_body().collect().await.unwrap().to_bytes(), "ok", "what runs runs on");
        for _ in 0..10 {
            fetch(&d, get()).await.unwrap();
        }
        assert_eq!((old.accepted.get(), new.accepted.get()), (1, 1));
        until(|| d.idle_connections() == 1).await;
    });
}
