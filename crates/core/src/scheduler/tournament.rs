//! A tournament tree over the classes (Knuth, TAOCP vol. 3, 5.4.1): finds the class with the smallest key.
//! Reading the winner costs O(1), changing a key at most eight comparisons.

use crate::units::MAX_CLASSES;

const ABSENT: u128 = u128::MAX;

#[derive(Debug)]
pub(crate) struct Tournament {
    keys: Vec<u128>,
    /// Winner below each inner node; the root is node 1, leaves would be the nodes from [`MAX_CLASSES`].
    winners: Vec<u8>,
}

impl Default for Tournament {
    fn default() -> Self {
        let mut tree = Self { keys: vec![ABSENT; MAX_CLASSES], winners: vec![0; MAX_CLASSES] };
        for node in (1..MAX_CLASSES).rev() {
            tree.winners[node] = tree.winner(2 * node);
        }
        tree
    }
}

impl Tournament {
    /// Sets the key of a class; `None` removes it.
    pub(crate) fn set(&mut self, class: usize, key: Option<u128>) {
        let key = key.unwrap_or(ABSENT);
        if self.keys[class] == key {
            return;
        }
        self.keys[class] = key;
        let mut node = (MAX_CLASSES + class) / 2;
        while node > 0 {
            let (a, b) = (self.winner(2 * node), self.winner(2 * node + 1));
            let winner = if self.keys[usize::from(b)] < self.keys[usize::from(a)] { b } else { a };
            let before = std::mem::replace(&mut self.winners[node], winner);
            if before == winner && usize::from(winner) != class {
                // The class neither won nor wins here: nothing changes above.
                return;
            }
            node /= 2;
        }
    }

    /// The class with the smallest key; of equal ones that with the smallest id.
    pub(crate) fn first(&self) -> Option<(usize, u128)> {
        let class = usize::from(self.winners[1]);
        Some((class, self.keys[class])).filter(|(_, key)| *key != ABSENT)
    }

    fn winner(&self, node: usize) -> u8 {
        if node < MAX_CLASSES { self.winners[node] } else { (node - MAX_CLASSES) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_winner_is_the_smallest(
            ops in prop::collection::vec((0..MAX_CLASSES, prop::option::of(0u128..50)), 1..500)
        ) {
            let (mut tree, mut keys) = (Tournament::default(), vec![None; MAX_CLASSES]);
            for (class, key) in ops {
                tree.set(class, key);
                keys[class] = key;
                let first = keys.iter().enumerate().filter_map(|(i, key)| key.map(|key| (i, key)));
                prop_assert_eq!(tree.first(), first.min_by_key(|(i, key)| (*key, *i)));
            }
        }
    }
}
