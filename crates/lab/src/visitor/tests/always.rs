//! Properties that hold for any answers.

use super::*;

/// What may come of a request, and how long it takes.
#[derive(Clone, Copy, Debug)]
enum Op {
    Fits,
    Wait {
        after: Option<Duration>,
        refresh: Option<Duration>,
        poll: Option<Duration>,
        has_status: bool,
        full: bool,
    },
    Status {
        state: State,
        poll: Duration,
        wait: Duration,
    },
    Refused(u16),
    Fails(Failure),
    Skip,
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0_u64..100_000).prop_map(Duration::from_millis),
        2 => (0_u64..5_000_000_000).prop_map(Duration::from_nanos),
        1 => Just(MAX_TIME),
        1 => Just(Duration::MAX),
    ]
}

fn state() -> impl Strategy<Value = State> {
    prop::sample::select(vec![
        State::Waiting,
        State::Ready,
        State::Expired,
        State::Redeemed,
        State::Full,
        State::Unavailable,
        State::Other,
    ])
}

fn failure() -> impl Strategy<Value = Failure> {
    prop::sample::select(vec![
        Failure::Refused,
        Failure::Connect,
        Failure::Broken,
        Failure::Patience,
        Failure::Bench,
    ])
}

fn op() -> impl Strategy<Value = Op> {
    let maybe = || prop::option::of(time());
    prop_oneof![
        3 => Just(Op::Fits),
        4 => (maybe(), maybe(), maybe(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(after, refresh, poll, has_status, full)| {
                Op::Wait { after, refresh, poll, has_status: has_status && !full, full }
            }
        ),
        4 => (state(), time(), time()).prop_map(|(state, poll, wait)| Op::Status { state, poll, wait }),
        2 => nonsense(),
        1 => Just(Op::Skip),
    ]
}

fn nonsense() -> impl Strategy<Value = Op> {
    prop_oneof![(100_u16..1000).prop_map(Op::Refused), failure().prop_map(Op::Fails)]
}

prop_compose! {
    fn any_kind()(
        thinks in prop::collection::vec(0.0..9.0_f64, 1..5),
        retries in 0_u8..4,
        shares in prop::array::uniform5(prop::sample::select(vec![0.0, 0.5, 1.0])),
        limit in prop::sample::select(vec![Dist::Never, Dist::Fixed(0.0), Dist::Exponential(60.0)]),
        pause in prop::sample::select(
            vec![Dist::Fixed(0.0), Dist::Uniform(0.5, 1.5), Dist::Exponential(9.0)],
        ),
        follow in prop::sample::select(
            vec![Follow::Page, Follow::Refresh, Follow::RetryAfter, Follow::Nothing],
        ),
    ) -> Kind {
        let [no_show, early, late, tamper, replay] = shares;
        let wait_limit = limit;
        let steps = steps(&thinks);
        Kind {
            steps, retries, no_show, early, late, tamper, replay, wait_limit, pause, follow,
            ..Kind::default()
        }
    }
}

/// A visitor under watch: every step is checked.
struct Watched {
    mix: VisitorMix,
    visitor: Visitor,
    now: Duration,
    /// Failed requests for the page in this step, in time or too late.
    failures: u32,
    served: usize,
    was_told: bool,
    /// Requests before the turn, altered tickets, used tickets.
    once: [u32; 3],
    end: Option<End>,
}

impl Watched {
    fn new(kind: Kind, seed: u64) -> Self {
        let mix = mix(kind);
        let visitor = Visitor::new(person(seed), &mix);
        Self { mix, visitor, now: CAME, failures: 0, served: 0, was_told: false, once: [0; 3], end: None }
    }

    fn kind(&self) -> &Kind {
        &self.mix.kinds[1]
    }

    fn outcome(&self, op: Op) -> Outcome {
        match op {
            Op::Fits if self.visitor.ask() == RequestKind::Status => status(State::Ready, S, Duration::ZERO),
            Op::Fits | Op::Skip => Ok(Answer::Served),
            Op::Wait { after, refresh, poll, has_status, full } => {
                Ok(Answer::Wait { has_status, after, refresh, poll, full })
            }
            Op::Status { state, poll, wait } => status(state, poll, wait),
            Op::Refused(status) => Ok(Answer::Refused(status)),
            Op::Fails(failure) => Err(failure),
        }
    }

    fn apply(&mut self, op: Op, takes: Duration) {
        let before = self.visitor;
        let ask = before.ask();
        assert!(before.at() >= self.now, "sent in the past");
        assert!(before.gives_up_at(&self.mix) >= before.at());
        self.now = before.at().saturating_add(takes);
        let attack = matches!(ask, RequestKind::Tampered | RequestKind::Replayed);
        self.once[1] += u32::from(ask == RequestKind::Tampered);
        self.once[2] += u32::from(ask == RequestKind::Replayed);
        self.once[0] += u32::from(before.has(PREMATURE) && !attack);
        let reaction = if attack && matches!(op, Op::Skip) {
            self.visitor.skip_attack(&self.mix, self.now)
        } else {
            self.visitor.receive(&self.mix, self.outcome(op), self.now)
        };
        self.check_noted(&before, reaction.noted);
        match reaction.next {
            Next::Send(at) => {
                // Whole microseconds: rounded up, and cut at half a million years.
                assert!(at >= self.now || self.visitor.at_us == u64::MAX, "{at:?} < {:?}", self.now);
                assert_eq!((at, self.visitor.kind()), (self.visitor.at(), 1));
                assert!(usize::from(self.visitor.step()) < self.kind().steps.len());
                self.now = self.now.min(at);
            }
            Next::Leave(end) => {
                self.end = Some(end);
                match end {
                    End::Done => assert_eq!(self.served, self.kind().steps.len()),
                    End::NoShow => assert!(self.kind().no_show > 0.0 && self.was_told),
                    End::Tired => assert!(self.kind().wait_limit != Dist::Never && self.was_told),
                    End::Failed(failure) => assert_eq!(reaction.noted, Noted::Failed(failure)),
                }
            }
        }
        assert!(self.once.iter().all(|times| *times <= 1), "{:?}", self.once);
        assert!(!self.visitor.in_room() || self.was_told);
    }

    fn check_noted(&mut self, before: &Visitor, noted: Noted) {
        match noted {
            Noted::Served { step, entered, response, waited, waited_since } => {
                assert_eq!((usize::from(step), entered), (self.served, before.at()));
                assert_eq!(entered + response, self.now);
                assert_eq!(waited, self.was_told.then(|| entered - waited_since));
                assert!(!self.visitor.in_room());
                self.served += 1;
                (self.failures, self.was_told) = (0, false);
            }
            Noted::ToldToWait { .. } => {
                assert!(!before.in_room() && self.visitor.in_room());
                self.was_told = true;
            }
            Noted::ToldFull => {
                assert!(!self.visitor.in_room());
                self.was_told = true;
            }
            Noted::Failed(_) if before.ask() == RequestKind::Page && !before.has(PREMATURE) => {
                self.failures += 1;
                assert!(self.failures <= u32::from(self.kind().retries) + 1, "one more than retries");
            }
            Noted::Attack { .. } => {
                assert!(matches!(before.ask(), RequestKind::Tampered | RequestKind::Replayed))
            }
            Noted::Failed(_) | Noted::Nothing => {}
        }
        if before.ask() == RequestKind::Replayed {
            assert!(!self.visitor.in_room() && self.served > 0);
        }
    }
}

proptest! {
    #[test]
    fn a_visit_keeps_its_rules_and_ends(
        kind in any_kind(),
        seed: u64,
        ops in prop::collection::vec((op(), 0_u64..20_000), 0..80),
    ) {
        let mut watched = Watched::new(kind, seed);
        for (op, takes_ms) in ops {
            if watched.end.is_none() {
                watched.apply(op, Duration::from_millis(takes_ms));
            }
        }
        // From now on everything goes well: for each step at most two detours, status, page and the used
        // ticket.
        let most = 5 * watched.kind().steps.len() + 5;
        for _ in 0..most {
            if watched.end.is_none() {
                watched.apply(Op::Fits, MS);
            }
        }
        prop_assert!(watched.end.is_some(), "still there: {:?}", watched.visitor);
    }

    #[test]
    fn a_visitor_who_gets_only_nonsense_leaves(kind in any_kind(), seed: u64, op in nonsense()) {
        let mut watched = Watched::new(kind, seed);
        for _ in 0..5 {
            if watched.end.is_none() {
                watched.apply(op, MS);
            }
        }
        prop_assert!(matches!(watched.end, Some(End::Failed(_))), "{:?}", watched.end);
    }
}
