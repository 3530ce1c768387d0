//! The bytes of a row, and the index of each figure in it.
//!
//! ```text
//! seconds: u32 | average, min, max: f32 each | average, min, max | …       little-endian; NaN: not known
//! ```
//!
//! The file stores the index of each figure (table `metric`), so that files of older and newer versions can
//! be read and continued: figures that the file lacks are appended, and figures that this version does not
//! know keep their index. All rows of a version have one length, so that a row is overwritten in place.

use super::aggregate::{Aggregate, Spread};
use super::metrics::Scope;

/// Bytes of one figure in a row.
pub const FIGURE_BYTES: u64 = 12;
/// Bytes of a row beside its figures.
pub const HEAD_BYTES: u64 = 4;
/// Figures of one scope that a file may hold: more than any version had.
pub const MAX_FIGURES: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// By index in [`Scope::metrics`]: the index in the row.
    indices: Vec<usize>,
    /// Figures in a row, those of other versions included.
    width: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFigure {
    pub name: &'static str,
    pub index: usize,
}

/// The file has figures that no version of this program writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOurs;

impl Layout {
    /// The layout of a file that has these figures at these indices, and the figures to be added.
    ///
    /// # Errors
    /// An index is larger than any version's, or used twice.
    pub fn new(scope: Scope, known: &[(String, usize)]) -> Result<(Self, Vec<NewFigure>), NotOurs> {
        let mut taken = [false; MAX_FIGURES];
        for (_, index) in known {
            let taken = taken.get_mut(*index).ok_or(NotOurs)?;
            if std::mem::replace(taken, true) {
                return Err(NotOurs);
            }
        }
        let mut width = known.iter().map(|(_, index)| index + 1).max().unwrap_or(0);
        let mut new = Vec::new();
        let mut indices = Vec::new();
        for metric in scope.metrics() {
            let index = known.iter().find(|(name, _)| name == metric.name).map(|(_, index)| *index);
            indices.push(index.unwrap_or_else(|| {
                new.push(NewFigure { name: metric.name, index: width });
                width += 1;
                width - 1
            }));
        }
        if width > MAX_FIGURES { Err(NotOurs) } else { Ok((Self { indices, width }, new)) }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn encode(&self, data: &Aggregate, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&data.seconds.to_le_bytes());
        let mut spreads = [Spread::NOTHING; MAX_FIGURES];
        for (index, value) in self.indices.iter().zip(&data.values) {
            spreads[*index] = *value;
        }
        for spread in &spreads[..self.width] {
            for value in [spread.average, spread.min, spread.max] {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Reads a row; figures that it lacks are not known.
    pub fn decode(&self, bytes: &[u8]) -> Aggregate {
        let values = (0..self.indices.len()).map(|figure| self.figure(bytes, figure)).collect();
        Aggregate { seconds: Self::seconds(bytes), values }
    }

    /// Reads one figure of a row, by its index in [`Scope::metrics`].
    pub fn figure(&self, bytes: &[u8], figure: usize) -> Spread {
        let at = HEAD_BYTES as usize + self.indices[figure] * FIGURE_BYTES as usize;
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
    fn rows_are_decoded_as_they_were_encoded() {
        let (layout, new) = Layout::new(Scope::Class, &[]).unwrap();
        assert_eq!(new.len(), Scope::Class.metrics().len());
        let mut bytes = Vec::new();
        layout.encode(&counting(), &mut bytes);
        assert_eq!(bytes.len() as u64, HEAD_BYTES + FIGURE_BYTES * new.len() as u64);
        assert_eq!(layout.decode(&bytes), counting());
        assert_eq!(layout.figure(&bytes, 3).max, 6.0);
    }

    #[test]
    fn a_file_of_another_version_is_continued() {
        let known: Vec<_> =
            [("gone", 0), ("goodput", 1), ("arrivals", 3)].map(|(n, p)| (n.to_owned(), p)).into();
        let (layout, new) = Layout::new(Scope::Class, &known).unwrap();
        assert!(!new.iter().any(|figure| ["goodput", "arrivals"].contains(&figure.name)));
        assert_eq!(new[0].index, 4, "behind what the file has");
        let mut bytes = Vec::new();
        layout.encode(&counting(), &mut bytes);
        assert_eq!(layout.decode(&bytes), counting());
        // A row of the older version ends early.
        let old = layout.decode(&bytes[..4 + 4 * 12]);
        let is_known: Vec<_> = (0..old.values.len()).filter(|i| !old.values[*i].is_nothing()).collect();
        assert_eq!(is_known, [0, 2], "arrivals and goodput: {:?}", old.values);
    }

    #[test]
    fn bytes_that_are_no_row_have_no_figures() {
        let (layout, _) = Layout::new(Scope::Gate, &[]).unwrap();
        for bytes in [&[][..], &[1, 2, 3], &[0xff; 10]] {
            assert!(layout.decode(bytes).values.iter().all(Spread::is_nothing));
        }
        for indices in [vec![0, 0], vec![MAX_FIGURES], vec![MAX_FIGURES - 1]] {
            let known: Vec<_> = indices.iter().enumerate().map(|(i, p)| (format!("other{i}"), *p)).collect();
            assert_eq!(Layout::new(Scope::Gate, &known), Err(NotOurs), "{indices:?}");
        }
    }
}
