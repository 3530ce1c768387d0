//! Fair shares: no address prefix holds so much of the room that others are told that it is full.
//!
//! A position costs a client one request, and a client without cookies gets another one with every request.
//! So the work promised to a prefix is bounded while visitors wait. A prefix gets no further position if
//! what it holds exceeds both
//!
//! * its share (`room.prefix_share`) of the longest wait, and
//! * what is still free of the longest wait.
//!
//! The first keeps shared addresses safe: an address translator with a fifth of the crowd holds a fifth of
//! the room, and may hold a quarter. The second lets a prefix have more where nobody else wants it (all
//! visitors behind one proxy) and still stops it at half of an empty room. It is the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, 1998) with the factor one.
//!
//! **Prefixes.** IPv4 /32 and /24, IPv6 /56 and /48; the wider one may hold half as much again. A /32 alone
//! would be cheap to evade (hosters rent out addresses by the /24), and a /24 alone would let one client use
//! up what its neighbours have. A /56 is one subscriber (RFC 6177), and some subscribers have a whole /48.
//!
//! **The sketch.** Nothing is kept per visitor or per prefix: a count-min sketch (Cormode and Muthukrishnan,
//! 2005) of the promised work, 256 KB. Its cells hold one number for each of sixteen epochs of the schedule,
//! so that promises leave it as the virtual clock passes them, without anybody removing them. It never
//! counts too little, and too much by some thousandths of the room: an ordinary prefix would have to meet
//! one that holds a share in all four rows. The hash keys are secret, so that nobody can arrange that.
//!
//! Not saved: after a restart a prefix may take its share once more. Rejected: a table of prefixes (a client
//! with a /32 of IPv6 has 65,536 of /48); a decay by time (the virtual clock may stand still).

use std::net::IpAddr;
use std::time::Duration;

use super::Room;
use super::page_parts::MAX_PARTS;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Timestamp};

const ROWS: usize = 4;
const WIDTH_BITS: u32 = 9;
const EPOCHS: usize = 16;
/// What the wider prefix may hold, as a multiple of the share.
const WIDE: f64 = 1.5;
/// Positions that nobody is refused for: below, the free part of the room is not computed.
const FEW: Cost = Cost::from_hundredths(1_000);
/// A refused client comes again in half a minute to a minute and a half: others come in between, and those
/// who hold the share are let in.
const RETRY: Duration = Duration::from_secs(30);
const RETRY_SPREAD: Duration = Duration::from_secs(60);

/// Time over which the parts of pages that did not wait are bounded; less than the sixteen seconds that the
/// sketch keeps.
pub(crate) const EARLY_PARTS_WITHIN: Duration = Duration::from_secs(10);
/// Parts in that time that any address may have: some images more of one page, at a service whose share of an
/// address is less than one page.
const STEADY_PARTS: u32 = MAX_PARTS / 3;

/// Keys of the hash functions; to be drawn at random.
pub type PrefixKeys = [u64; ROWS];

/// The prefixes of an address, the narrow one first, as numbers that no two prefixes share.
fn prefixes(address: IpAddr) -> [u64; 2] {
    let [narrow, wide] = match address.to_canonical() {
        IpAddr::V4(v4) => [u64::from(v4.to_bits()), u64::from(v4.to_bits() >> 8)],
        IpAddr::V6(v6) => [(v6.to_bits() >> 72) as u64 | 1 << 63, (v6.to_bits() >> 80) as u64 | 1 << 63],
    };
    [narrow, wide | 1 << 62]
}

/// The work promised to each prefix.
pub(super) struct PrefixShares {
    /// `{epoch: 32, hundredths: 32}`, the epochs of a cell side by side.
    cells: Box<[AtomicU64]>,
    keys: PrefixKeys,
    epoch_s: u64,
}

impl PrefixShares {
    /// For a schedule of so many seconds.
    pub(super) fn new(schedule_s: u64) -> Self {
        let cells = (ROWS * EPOCHS) << WIDTH_BITS;
        Self {
            cells: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            keys: [
                0x9e37_79b9_7f4a_7c15,
                0xbf58_476d_1ce4_e5b9,
                0x94d0_49bb_1331_11eb,
                0xd6e8_feb8_6659_fd93,
            ],
            // From the epoch of the virtual clock to that of the last second are sixteen at most.
            epoch_s: schedule_s / (EPOCHS as u64 - 1) + 1,
        }
    }

    /// Whose epochs are seconds.
    pub(super) fn by_second() -> Self {
        Self::new(0)
    }

    /// A row's cell for a prefix: multiply-shift hashing (Dietzfelbinger and others, 1997).
    fn cell(&self, row: usize, prefix: u64) -> &[AtomicU64] {
        let hash = prefix.wrapping_mul(self.keys[row] | 1) >> (u64::BITS - WIDTH_BITS);
        let at = (row << WIDTH_BITS) + hash as usize;
        &self.cells[at * EPOCHS..][..EPOCHS]
    }

    /// Counts work that is promised for the second of `slot`.
    fn promise(&self, address: IpAddr, cost: Cost, slot: Timestamp) {
        let epoch = slot.second() / self.epoch_s;
        for (row, prefix) in (0..ROWS).flat_map(|row| prefixes(address).map(|prefix| (row, prefix))) {
            let promised = |word: u64| match (word >> 32).cmp(&epoch) {
                // Sixteen epochs ago: it has passed.
                std::cmp::Ordering::Less => Some(epoch << 32 | cost.hundredths().min(u32::MAX.into())),
                std::cmp::Ordering::Equal => {
                    let sum = (word & u64::from(u32::MAX)) + cost.hundredths();
                    Some(epoch << 32 | sum.min(u32::MAX.into()))
                }
                std::cmp::Ordering::Greater => None,
            };
            let word = &self.cell(row, prefix)[epoch as usize % EPOCHS];
            _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, promised);
        }
    }

    /// Whether `is_over` says so of the work promised to a prefix from `clock_at` on. What it says no to, it
    /// must say no to where it is less: each row counts too much, so that one that is not over is enough.
    fn is_over(&self, prefix: u64, clock_at: Timestamp, is_over: impl Fn(Cost) -> bool) -> bool {
        (0..ROWS).all(|row| is_over(self.held_by(row, prefix, clock_at)))
    }

    /// The work by one row. Of the epoch that the virtual clock is in, the part that is to come counts.
    fn held_by(&self, row: usize, prefix: u64, clock_at: Timestamp) -> Cost {
        let now = clock_at.second() / self.epoch_s;
        let (mut later, mut present) = (0, 0);
        for word in self.cell(row, prefix) {
            let word = word.load(Ordering::Relaxed);
            let (epoch, promised) = (word >> 32, word & u64::from(u32::MAX));
            later += if epoch > now { promised } else { 0 };
            present += if epoch == now { promised } else { 0 };
        }
        let passed_us = clock_at.as_micros() - now * self.epoch_s * 1_000_000;
        let rest = 1.0 - passed_us as f64 / (self.epoch_s * 1_000_000) as f64;
        Cost::from_hundredths((later as f64 + present as f64 * rest) as u64)
    }
}

impl Room {
    /// With secret keys for the hashes of address prefixes.
    #[must_use]
    pub fn with_prefix_keys(mut self, keys: PrefixKeys) -> Self {
        (self.shares.keys, self.early_parts.keys) = (keys, keys);
        self
    }

    /// Whether a part passes of a page that did not wait, as it was there before visitors began to wait
    /// (`since`): if the parts of its address in the last [`EARLY_PARTS_WITHIN`] are no more than its share
    /// of what the origin serves in that time, or than one page may have. Counts it if it does.
    pub(crate) fn take_early_part(
        &self,
        client: Option<IpAddr>,
        cost: Cost,
        since: Timestamp,
        now: Timestamp,
    ) -> bool {
        let (share, Some(client)) = (self.settings.prefix_share(), client) else { return true };
        let served = self.capacity().get() * EARLY_PARTS_WITHIN.as_secs_f64();
        let is_new_crowd = now.since(since) <= EARLY_PARTS_WITHIN;
        let least = f64::from(if is_new_crowd { MAX_PARTS } else { STEADY_PARTS });
        let most = |share: f64| (served * share).max(least);
        let [narrow, wide] = prefixes(client);
        let since = Timestamp::from_secs(since.max(now.saturating_sub(EARLY_PARTS_WITHIN)).second());
        let is_over =
            |(prefix, share)| self.early_parts.is_over(prefix, since, |held| held.units() >= most(share));
        if share < 1.0 && [(narrow, share), (wide, share * WIDE)].into_iter().any(is_over) {
            return false;
        }
        self.early_parts.promise(client, cost, now);
        true
    }

    /// Counts a position that a client takes up.
    pub(super) fn count_in_shares(&self, client: Option<IpAddr>, cost: Cost, slot: Timestamp) {
        if let Some(client) = client {
            self.shares.promise(client, cost, slot);
        }
    }

    /// Whether a client without a position gets none because its prefixes hold their share; then, when it is
    /// to come again. `random`: 64 random bits.
    pub(crate) fn over_share(&self, client: Option<IpAddr>, random: u64, now: Timestamp) -> Option<Duration> {
        let share = self.settings.prefix_share();
        if share >= 1.0 || !self.busy(now) {
            return None;
        }
        let clock_at = self.tickets.clock.at(now);
        let over = |(prefix, share): (u64, f64)| {
            let exceeds = |held| held > FEW && self.exceeds(held, share, clock_at, now);
            self.shares.is_over(prefix, clock_at, exceeds)
        };
        let [narrow, wide] = prefixes(client?);
        let is_over = [(narrow, share), (wide, share * WIDE)].into_iter().any(over);
        is_over.then(|| RETRY + RETRY_SPREAD.mul_f64(random as f64 / u64::MAX as f64))
    }

    /// Whether work of `held` is more of the longest wait than `share`, and than is free.
    fn exceeds(&self, held: Cost, share: f64, clock_at: Timestamp, now: Timestamp) -> bool {
        let (slots, max_wait) = (&self.schedule.slots, self.settings.max_wait());
        let exceeds = |held_s: f64, free: Duration| {
            held_s > max_wait.as_secs_f64() * share && held_s > free.as_secs_f64()
        };
        let frontier = Timestamp::from_secs(slots.frontier()).max(clock_at);
        let held_s = held.units() / slots.limit_at_frontier().units();
        if exceeds(held_s, (now + max_wait).since(frontier)) {
            return true;
        }
        // Where session slots are counted, the room is also full when the wait for one is too long.
        self.session_slots.are_counted() && {
            let (ahead, wait) = self.session_wait_behind_all(clock_at);
            let part = held.units() / ahead.cost.units().max(held.units());
            exceeds(wait.as_secs_f64() * part, max_wait.saturating_sub(wait))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PrefixShares {
        fn held(&self, prefix: u64, clock_at: Timestamp) -> Cost {
            (0..ROWS).map(|row| self.held_by(row, prefix, clock_at)).min().unwrap_or_default()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_of_one_subscriber_and_of_one_site_share_their_prefixes() {
        // (one, another, the narrow prefix is the same, the wide one is)
        let table = [
            ("192.0.2.1", "192.0.2.1", true, true),
            ("192.0.2.1", "::ffff:192.0.2.1", true, true),
            ("192.0.2.1", "192.0.2.255", false, true),
            ("192.0.2.1", "192.0.3.1", false, false),
            ("2001:db8:1:200::1", "2001:db8:1:2ff:ffff::9", true, true),
            ("2001:db8:1:200::1", "2001:db8:1:300::1", false, true),
            ("2001:db8:1:200::1", "2001:db8:2:200::1", false, false),
            ("0.0.0.0", "::", false, false),
        ];
        for (one, another, narrow, wide) in table {
            let (one, another) = (prefixes(ip(one)), prefixes(ip(another)));
            assert_eq!((one[0] == another[0], one[1] == another[1]), (narrow, wide), "{one:x?} {another:x?}");
            assert_ne!(one[0], one[1], "{one:x?}");
        }
    }

    #[test]
    fn promises_leave_the_sketch_as_the_virtual_clock_passes_them() {
        let shares = PrefixShares::new(1_500);
        let at = |s: u64| Timestamp::from_secs(1_800_000_000 / shares.epoch_s * shares.epoch_s + s);
        let client = ip("192.0.2.1");
        let held = |s| shares.held(prefixes(client)[0], at(s)).hundredths();
        for second in 0..1_515 {
            shares.promise(client, Cost::ONE, at(second));
        }
        assert_eq!([0, 101, 707, 1_010, 1_515].map(held), [151_500, 141_400, 80_800, 50_500, 0]);
        let half = held(50) as f64 / 100.0;
        assert!((half - 1_465.0).abs() <= 1.0, "the part of an epoch that has passed: {half}");
        // An epoch later its cells are used again.
        shares.promise(client, Cost::ONE, at(16 * 101));
        assert_eq!(held(16 * 101), 100);
        assert_eq!(shares.held(prefixes(ip("198.51.100.1"))[0], at(0)), Cost::ZERO);
    }

    #[test]
    fn a_prefix_is_not_charged_for_others() {
        let shares = PrefixShares::new(3_724);
        let now = Timestamp::from_secs(1_800_000_000);
        for number in 0..100_000_u32 {
            let client = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number * 251).into();
            shares.promise(client, Cost::ONE, now + Duration::from_secs(u64::from(number) / 100));
        }
        let most = (0..10_000_u32)
            .map(|n| std::net::Ipv4Addr::from_bits(0xc600_0000 + n * 257).into())
            .map(|client| shares.held(prefixes(client)[0], now).units())
            .fold(0.0, f64::max);
        assert!(most < 2_000.0, "{most} of 100,000 are counted to a prefix that holds nothing");
    }
}
