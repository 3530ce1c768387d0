//! What reaches a connection's task from elsewhere: the shutdown, and policies that end or stop answers under
//! way. Connections of both protocols ask here.

use tidegate_core::policies::Action;

use crate::proxy::context::Conn;
use crate::shared::policies::stats::Done;
use crate::shared::{Drain, Shared, Worker};

/// The news that a connection's task has received so far.
#[derive(Clone, Copy)]
pub(super) struct Told {
    is_ending: bool,
    cuts: u64,
}

pub(super) enum News {
    /// The shutdown has come to idle connections.
    Idle,
    /// Other policies than before end or stop answers under way.
    Cuts,
}

impl Told {
    pub(super) fn new(worker: &Worker) -> Self {
        Self { is_ending: false, cuts: worker.shared.policies.cuts() }
    }

    /// Policies that came in force before count as news once more.
    pub(super) fn again(mut self) -> Self {
        self.cuts = self.cuts.wrapping_sub(1);
        self
    }

    /// The next news. Both come through one channel: so each turn of a connection waits for one only.
    pub(super) async fn news(
        &mut self,
        drain: &mut tokio::sync::watch::Receiver<Drain>,
        shared: &Shared,
    ) -> News {
        let (is_ending, cuts) = (self.is_ending, self.cuts);
        let enforcement = &shared.policies;
        // As in `reached`: the value it returns holds the channel's lock.
        let news = |now: &Drain| (!is_ending && *now >= Drain::Idle) || enforcement.cuts() != cuts;
        let is_idle = drain.wait_for(news).await.map_or(true, |now| *now >= Drain::Idle);
        let now = enforcement.cuts();
        if now != std::mem::replace(&mut self.cuts, now) {
            return News::Cuts;
        }
        debug_assert!(is_idle);
        self.is_ending = true;
        News::Idle
    }
}

/// The action of a policy in force on the connection's present request, if there is one.
pub(super) fn ordered(worker: &Worker, conn: &Conn) -> Option<Action> {
    let standing = worker.policies(worker.policy_version())?;
    let policy = conn.control.cut_by(&standing, worker.now())?;
    // A stopped answer is one under way; a connection that idles may end all the same.
    if policy.action == Action::Stop && !conn.link.is_busy() && conn.control.tunnel().is_none() {
        return None;
    }
    if conn.control.note_order(policy.action) {
        standing.count(policy, Done::from(policy.action));
    }
    Some(policy.action)
}
