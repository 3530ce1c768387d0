//! What was served of each kind of visitor, where a scenario has several: shares between classes are told by it.

/// Kinds in the scenario's order: key and requests served. Those of a replayed log, of which there may be very many, are not
/// among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Vec<(String, u64)>);

impl Kinds {
    /// For these names; of a single kind the total tells all.
    pub fn new<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Self {
        Self(if names.len() < 2 { Vec::new() } else { names.map(|name| (key(name), 0)).collect() })
    }

    #[inline]
    pub fn served(&mut self, kind: u32) {
        if let Some((_, served)) = self.0.get_mut(kind as usize) {
            *served += 1;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        self.0.iter_mut().zip(&other.0).for_each(|((_, mine), (_, theirs))| *mine += theirs);
    }

    pub fn figures(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(key, served)| (key.as_str(), *served as f64))
    }
}

/// Under which a kind's figure is kept: what formulas can name.
pub(crate) fn key(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("served_{}", name.chars().map(plain).collect::<String>())
}
