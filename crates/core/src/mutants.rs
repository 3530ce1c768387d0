//! Deliberate faults. `scripts/mutants` switches them on one at a time and expects the tests to notice.
//!
//! The code asks [`is`] where a fault would be. Without the feature `mutants`, and in every build without
//! debug assertions, the answer is the constant `false`: a release has no fault to switch on. With it, the
//! environment variable `TIDEGATE_MUTANT` names the fault of the process.

macro_rules! mutants {
    ($($(#[$about:meta])+ $variant:ident = $name:literal,)+) => {
        /// A fault, one per kind of mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $($(#[$about])+ $variant,)+
        }

        #[cfg(all(feature = "mutants", debug_assertions))]
        const NAMES: &[(Mutant, &str)] = &[$((Mutant::$variant, $name),)+];
    };
}

mutants! {
    /// A tag of a ticket or pass is authentic whatever it is.
    AnyTagIsAuthentic = "any-tag-is-authentic",
    /// The virtual clock runs at 1.3 times the capacity, whatever the backlog.
    ClockRunsAhead = "clock-runs-ahead",
    /// The bottleneck estimator says twice the capacity that it measured.
    EstimateIsDoubled = "estimate-is-doubled",
    /// A finished request keeps its in-flight slot, so that no other is forwarded.
    FinishFreesNothing = "finish-frees-nothing",
    /// A visitor is due one second after the slot that first fit found.
    FirstFitOffByOne = "first-fit-off-by-one",
    /// The frontier moves past a second that still has room.
    FrontierSkips = "frontier-skips",
    /// A ticket whose request never reached the origin stays redeemed.
    GiveBackIsForgotten = "give-back-is-forgotten",
    /// A class's guaranteed share counts for nothing.
    GuaranteeIsIgnored = "guarantee-is-ignored",
    /// Announced waits are half of the real ones.
    HalfTheWait = "half-the-wait",
    /// One request more is in flight than the limit.
    LimitOffByOne = "limit-off-by-one",
    /// Promises for visitors who will not come have no upper bound.
    OverbookingIsUnbounded = "overbooking-is-unbounded",
    /// A promise that is due by the clock becomes a ticket for now.
    PromiseForNow = "promise-for-now",
    /// The queue is last come, first served.
    QueueLifo = "queue-lifo",
    /// A ticket can be redeemed again and again.
    RedeemedTwice = "redeemed-twice",
    /// A rule that refuses lets everyone pass.
    RuleRefusesNobody = "rule-refuses-nobody",
    /// A session's slot is not free after its end.
    SessionSlotIsLost = "session-slot-is-lost",
    /// The room keeps the targets it started with.
    TargetsStayAsTheyWere = "targets-stay-as-they-were",
    /// A ticket is redeemed up to a second before its turn.
    TurnASecondEarly = "turn-a-second-early",
}

#[cfg(not(all(feature = "mutants", debug_assertions)))]
#[inline(always)]
pub(crate) const fn is(_mutant: Mutant) -> bool {
    false
}

/// Whether this fault is switched on.
///
/// # Panics
/// `TIDEGATE_MUTANT` names none.
#[cfg(all(feature = "mutants", debug_assertions))]
pub(crate) fn is(mutant: Mutant) -> bool {
    use std::sync::LazyLock;

    static ACTIVE: LazyLock<Option<Mutant>> = LazyLock::new(|| {
        let name = std::env::var("TIDEGATE_MUTANT").ok()?;
        let known = NAMES.iter().find(|(_, known)| *known == name);
        Some(known.unwrap_or_else(|| panic!("TIDEGATE_MUTANT: there is no mutant {name:?}")).0)
    });
    *ACTIVE == Some(mutant)
}
