//! Memory of a million sessions.

use std::time::Duration;

use tidegate_core::gate::Totals;
use tidegate_core::policies::TierId;
use tidegate_core::session::{NoSessionSlot, SessionConfig, SessionInputs, SessionStatus, Sessions};
use tidegate_core::units::{Cost, Rate, Timestamp};

use super::heap;
use super::session_keys::key;

const MILLION: u64 = 1_000_000;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn admit(sessions: &Sessions, n: u64, now: Timestamp) -> Result<(), NoSessionSlot> {
    sessions.admit(key(n), TierId(0), Cost::ONE, now).map(|request| sessions.finish(request, now))
}

#[test]
fn a_million_sessions_take_less_than_128_mib_and_leave_nothing_behind() {
    let config = SessionConfig { max_entries: MILLION as usize, ..SessionConfig::default() };
    let before = heap::taken();
    heap::take_most();
    let sessions = Sessions::new(&config, START);
    for n in 0..MILLION {
        assert_eq!(admit(&sessions, n, START), Ok(()));
    }
    assert_eq!(admit(&sessions, MILLION, START), Err(NoSessionSlot::TableFull));
    let most = heap::take_most() - before;
    assert!(most < 128 << 20, "{most} bytes at the most, while it grew");
    let taken = heap::taken() - before;
    let reported = sessions.bytes();
    assert!(reported.abs_diff(taken) < 64 << 10, "{reported} bytes reported, {taken} taken");
    assert!((0..MILLION).step_by(997).all(|n| sessions.status(key(n), START) == SessionStatus::Admitted));

    // The entries of ended sessions are used again: another million takes no memory.
    let later = START + config.timeout + Duration::from_secs(1);
    let gate = Totals::default();
    sessions.tick(&SessionInputs { capacity: Rate::MAX, is_measured: true, gate: &gate, waiting: 0 }, later);
    assert_eq!((sessions.count().open, sessions.state().entries), (0, 0));
    for n in MILLION..2 * MILLION {
        assert_eq!(admit(&sessions, n, later), Ok(()));
    }
    let again = heap::taken() - before;
    assert!(again < taken + taken / 50, "{again} bytes after {taken}");
}
