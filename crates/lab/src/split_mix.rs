//! SplitMix64: eight bytes of state, and any start is a good one (Steele, Lea, Flood, "Fast splittable
//! pseudorandom number generators", 2014).

/// 2^64 divided by the golden ratio, odd: the step of the state.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function, one step included: a bijection in which every bit of the result depends on every bit
/// of `state`.
pub(crate) const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
