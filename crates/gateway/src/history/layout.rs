//! A row's bytes, and where each figure lies in them.
//!
//! ```text
//! seconds: u32 | average, min, max: f32 each | average, min, max | …       little-endian; NaN: not known
//! ```
//!
//! The file says which figure lies where (table `metric`), so that files of older and newer versions can be read and
//! continued: figures that the file does not know are appended, those that this version does not know keep their place.
//! All rows of a version have one length, so that a row is overwritten in place.

use super::aggregate::{Aggregate, Spread};
use super::metrics::Scope;

/// Bytes of one figure in a row.
pub const FIGURE_BYTES: u64 = 12;
/// Bytes of a row beside its figures.
pub const HEAD_BYTES: u64 = 4;
/// Figures of one scope that a file may hold: more than any version had.
pub const MAX_FIGURES: usize = 64;

/// Where the figures of one scope lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// By index in [`Scope::metrics`]: the place in the row.
    places: Vec<usize>,
    /// Places in a row, those of other versions included.
    width: usize,
}

/// A figure that a file lacks, and its place.
pub type New = (&'static str, usize);

/// The file holds figures that cannot be this program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOurs;

impl Layout {
    /// The layout of a file that has these figures at these places, and the figures that must be added to it.
    ///
    /// # Errors
    /// Places beyond any version's, or one given twice.
    pub fn new(scope: Scope, known: &[(String, usize)]) -> Result<(Self, Vec<New>), NotOurs> {
        let mut taken = [false; MAX_FIGURES];
        for (_, place) in known {
            let taken = taken.get_mut(*place).ok_or(NotOurs)?;
            if std::mem::replace(taken, true) {
                return Err(NotOurs);
            }
        }
        let mut width = known.iter().map(|(_, place)| place + 1).max().unwrap_or(0);
        let mut new = Vec::new();
        let mut places = Vec::new();
        for metric in scope.metrics() {
            let place = known.iter().find(|(name, _)| name == metric.name).map(|(_, place)| *place);
            places.push(place.unwrap_or_else(|| {
                new.push((metric.name, width));
                width += 1;
                width - 1
            }));
        }
        if width > MAX_FIGURES { Err(NotOurs) } else { Ok((Self { places, width }, new)) }
    }

    /// Places in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Writes a row.
    pub fn encode(&self, data: &Aggregate, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&data.seconds.to_le_bytes());
        let mut spreads = [Spread::NOTHING; MAX_FIGURES];
        for (place, value) in self.places.iter().zip(&data.values) {
            spreads[*place] = *value;
        }
        for spread in &spreads[..self.width] {
            for value in [spread.average, spread.min, spread.max] {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Reads a row; what it does not hold is not known.
    pub fn decode(&self, bytes: &[u8]) -> Aggregate {
        let values = (0..self.places.len()).map(|figure| self.figure(bytes, figure)).collect();
        Aggregate { seconds: Self::seconds(bytes), values }
    }

    /// Reads one figure of a row, by its index in [`Scope::metrics`].
    pub fn figure(&self, bytes: &[u8], figure: usize) -> Spread {
        let at = HEAD_BYTES as usize + self.places[figure] * FIGURE_BYTES as usize;
        let value = |k: usize| word(bytes, at + 4 * k).map(f32::from_le_bytes);
        match (value(0), value(1), value(2)) {
            (Some(average), Some(min), Some(max)) => Spread { average, min, max },
            _ => Spread::NOTHING,
        }
    }

    /// Seconds of the interval that were measured.
    pub fn seconds(bytes: &[u8]) -> u32 {
        word(bytes, 0).map_or(0, u32::from_le_bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> Aggregate {
        let n = Scope::Class.metrics().len();
        let spread = |i: usize| Spread { average: i as f32, min: -(i as f32), max: 2.0 * i as f32 };
        Aggregate { seconds: 60, values: (0..n).map(spread).collect() }
    }

    #[test]
    fn a_row_comes_back() {
        let (layout, new) = Layout::new(Scope::Class, &[]).unwrap();
        assert_eq!(new.len(), Scope::Class.metrics().len());
        let mut bytes = Vec::new();
        layout.encode(&counting(), &mut bytes);
        assert_eq!(bytes.len() as u64, HEAD_BYTES + FIGURE_BYTES * new.len() as u64);
        assert_eq!(layout.decode(&bytes), counting());
        assert_eq!(layout.figure(&bytes, 3).max, 6.0);
    }

    #[test]
    fn another_version_s_file_is_continued() {
        let known: Vec<_> =
            [("gone", 0), ("goodput", 1), ("arrivals", 3)].map(|(n, p)| (n.to_owned(), p)).into();
        let (layout, new) = Layout::new(Scope::Class, &known).unwrap();
        assert!(!new.iter().any(|(name, _)| ["goodput", "arrivals"].contains(name)));
        assert_eq!(new[0].1, 4, "behind what the file has");
        let mut bytes = Vec::new();
        layout.encode(&counting(), &mut bytes);
        assert_eq!(layout.decode(&bytes), counting());
        // A row of the older version ends early.
        let old = layout.decode(&bytes[..4 + 4 * 12]);
        let is_known: Vec<_> = (0..old.values.len()).filter(|i| !old.values[*i].is_nothing()).collect();
        assert_eq!(is_known, [0, 2], "arrivals and goodput: {:?}", old.values);
    }

    #[test]
    fn bytes_that_are_no_row_are_nothing() {
        let (layout, _) = Layout::new(Scope::Gate, &[]).unwrap();
        for bytes in [&[][..], &[1, 2, 3], &[0xff; 10]] {
            assert!(layout.decode(bytes).values.iter().all(Spread::is_nothing));
        }
        for places in [vec![0, 0], vec![MAX_FIGURES], vec![MAX_FIGURES - 1]] {
            let known: Vec<_> = places.iter().enumerate().map(|(i, p)| (format!("other{i}"), *p)).collect();
            assert_eq!(Layout::new(Scope::Gate, &known), Err(NotOurs), "{places:?}");
        }
    }
}
