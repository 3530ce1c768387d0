//! Correlation while requests come: counts by type in the interval under way, and a [`Window`] for each
//! figure.
//!
//! ```text
//! paths ───► templates ─┐
//! classes ──────────────┴─► counts by type ─► (end of the interval) ─► window of each figure ─► Analysis
//! ```
//!
//! Classes and templates share one numbering of types: a type has a number from its first request on, and
//! numbers that are free again are given to others. So tables are as large as what comes, and not as what
//! might: at most `max_types` templates, [`TypeName::Other`], and the classes.
//!
//! The end of an interval takes O(types) for each figure, and O(types × intervals) once per window. A
//! template that loses its type to another takes O(intervals) for each figure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::analysis::Columns;
use super::templates::{OTHER, TemplateSettings, Templates};
use super::type_name::TypeName;
use super::window::Window;

/// Most figures: each has a window of its own.
pub const MAX_FIGURES: usize = 16;

/// What a number of a type stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Numbered {
    Class(Arc<str>),
    /// By the number that [`Templates`] gives.
    Template(usize),
    Nothing,
}

/// Counts, and the windows of all figures.
#[derive(Clone, Debug)]
pub struct Live {
    max_intervals: usize,
    templates: Templates,
    types: Vec<Numbered>,
    /// Numbers of types by the numbers of templates; `None`: it had no request yet.
    by_template: Vec<Option<usize>>,
    by_class: BTreeMap<Arc<str>, usize>,
    /// Requests of each type in the interval under way, and in the last one.
    counts: Vec<u64>,
    last_counts: Vec<u64>,
    figures: Vec<(Arc<str>, Window)>,
    /// Intervals that have ended.
    ended: u64,
}

impl Live {
    /// Windows of `max_intervals` each.
    pub fn new(max_intervals: usize, templates: TemplateSettings) -> Self {
        Self {
            max_intervals,
            templates: Templates::new(templates),
            types: Vec::new(),
            by_template: Vec::new(),
            by_class: BTreeMap::new(),
            counts: Vec::new(),
            last_counts: Vec::new(),
            figures: Vec::new(),
            ended: 0,
        }
    }

    /// Counts a request by its path.
    pub fn count_path(&mut self, target: &str) {
        let seen = self.templates.observe("", target);
        if seen.is_new
            && let Some(taken) = self.by_template.get(seen.index).copied().flatten()
        {
            // What the template before had in this interval stays in the sum of all.
            let before = std::mem::take(&mut self.counts[taken]);
            self.count_other(before);
            self.forget(taken);
        }
        let number = self.number_of_template(seen.index);
        self.counts[number] += 1;
    }

    /// Counts requests whose path is not known.
    pub fn count_other(&mut self, requests: u64) {
        if requests > 0 {
            let number = self.number_of_template(OTHER);
            self.counts[number] += requests;
        }
    }

    /// Counts requests of a class.
    pub fn count_class(&mut self, class: &Arc<str>, requests: u64) {
        if let Some(number) = self.by_class.get(class) {
            self.counts[*number] += requests;
        } else if requests > 0 {
            let number = self.new_number(Numbered::Class(class.clone()));
            self.by_class.insert(class.clone(), number);
            self.counts[number] = requests;
        }
    }

    /// Forgets the classes that are not among these.
    pub fn keep_classes(&mut self, is_kept: impl Fn(&str) -> bool) {
        let gone: Vec<Arc<str>> = self.by_class.keys().filter(|name| !is_kept(name)).cloned().collect();
        for name in gone {
            if let Some(number) = self.by_class.remove(&name) {
                self.types[number] = Numbered::Nothing;
                self.counts[number] = 0;
                self.forget(number);
            }
        }
    }

    fn number_of_template(&mut self, template: usize) -> usize {
        if self.by_template.len() <= template {
            self.by_template.resize(template + 1, None);
        }
        if let Some(number) = self.by_template[template] {
            return number;
        }
        let number = self.new_number(Numbered::Template(template));
        self.by_template[template] = Some(number);
        number
    }

    fn new_number(&mut self, of: Numbered) -> usize {
        if let Some(free) = self.types.iter().position(|numbered| *numbered == Numbered::Nothing) {
            self.types[free] = of;
            return free;
        }
        self.types.push(of);
        self.counts.push(0);
        self.types.len() - 1
    }

    fn forget(&mut self, number: usize) {
        self.figures.iter_mut().for_each(|(_, window)| window.forget(number));
        if let Some(last) = self.last_counts.get_mut(number) {
            *last = 0;
        }
    }

    /// Ends the interval with the figures in it, at most [`MAX_FIGURES`]; those not named are forgotten.
    /// `merged`: the counts are those of so many intervals, which could not be told apart.
    pub fn end_interval(&mut self, figures: &[(Arc<str>, Option<f64>)], merged: u64) {
        let mut before = std::mem::take(&mut self.figures);
        for (name, _) in figures.iter().take(MAX_FIGURES) {
            let known = before.iter().position(|(known, _)| known == name);
            let window = known.map(|at| before.swap_remove(at).1);
            self.figures.push((name.clone(), window.unwrap_or_else(|| Window::new(self.max_intervals))));
        }
        for part in 0..merged.max(1) {
            let upto = |count: u64, parts: u64| u128::from(count) * u128::from(parts) / u128::from(merged);
            let share = |count: &u64| (upto(*count, part + 1) - upto(*count, part)) as u64;
            let counts = match merged {
                0 | 1 => self.counts.clone(),
                _ => self.counts.iter().map(share).collect(),
            };
            for ((_, window), (_, value)) in self.figures.iter_mut().zip(figures) {
                window.push(&counts, *value);
            }
            self.last_counts = counts;
            self.ended += 1;
        }
        self.counts.iter_mut().for_each(|count| *count = 0);
    }

    /// Leaves the interval out: its requests came in a time that is not known.
    pub fn skip_interval(&mut self) {
        self.counts.iter_mut().for_each(|count| *count = 0);
    }

    /// Intervals that have ended so far. Findings of equal numbers are equal.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The figures, with the intervals that each window holds.
    pub fn figures(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.figures.iter().map(|(name, window)| (name, window.intervals()))
    }

    /// Types that have a number.
    pub fn types(&self) -> usize {
        self.types.iter().filter(|numbered| **numbered != Numbered::Nothing).count()
    }

    /// What the window of a figure holds, to be analysed elsewhere. `None`: there is no such figure.
    pub fn columns(&self, figure: &str) -> Option<Columns> {
        let (name, window) = self.figures.iter().find(|(name, _)| **name == *figure)?;
        let (mut counts, values) = window.columns();
        // Types that had no request since the window began.
        counts.resize_with(self.types.len(), || vec![0.0; values.len()]);
        let named = self.types.iter().map(|numbered| match numbered {
            Numbered::Class(class) => Some(TypeName::Class(class.clone())),
            Numbered::Template(OTHER) => Some(TypeName::Other),
            Numbered::Template(template) => Some(TypeName::Path(self.templates.name(*template)?.into())),
            Numbered::Nothing => None,
        });
        let types = named.zip(counts).filter_map(|(name, counts)| Some((name?, counts))).collect();
        Some(Columns { figure: name.clone(), types, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(max_types: usize) -> Live {
        Live::new(50, TemplateSettings { max_types, ..TemplateSettings::default() })
    }

    fn figure(name: &str, value: f64) -> (Arc<str>, Option<f64>) {
        (name.into(), Some(value))
    }

    fn column(live: &Live, figure: &str, of_type: &str) -> Option<Vec<f64>> {
        let columns = live.columns(figure).expect("a figure");
        columns.types.into_iter().find(|(name, _)| name.to_string() == of_type).map(|(_, counts)| counts)
    }

    #[test]
    fn classes_and_templates_are_counted_side_by_side() {
        let mut live = live(10);
        let class: Arc<str> = "search".into();
        for second in 1..=3 {
            live.count_class(&class, second);
            (0..10 * second).for_each(|item| live.count_path(&format!("/item/{item}")));
            live.count_other(2);
            live.end_interval(&[figure("cpu", 0.5)], 1);
        }
        assert_eq!(column(&live, "cpu", "class:search"), Some(vec![1.0, 2.0, 3.0]));
        // The first request of a template has no type yet.
        assert_eq!(column(&live, "cpu", "path:/item/{n}"), Some(vec![9.0, 20.0, 30.0]));
        assert_eq!(column(&live, "cpu", "other"), Some(vec![3.0, 2.0, 2.0]));
        assert_eq!((live.ended(), live.types()), (3, 3));
    }

    #[test]
    fn figures_come_and_go() {
        let mut live = live(10);
        let other = |live: &Live, name| column(live, name, "other");
        live.count_other(1);
        live.end_interval(&[figure("a", 1.0)], 1);
        live.count_other(2);
        live.end_interval(&[figure("b", 1.0), figure("a", 1.0)], 1);
        assert_eq!(other(&live, "a"), Some(vec![1.0, 2.0]));
        assert_eq!(other(&live, "b"), Some(vec![2.0]));
        live.end_interval(&[figure("b", 1.0)], 1);
        assert!(live.columns("a").is_none());
        live.end_interval(&[figure("a", 1.0)], 1);
        assert_eq!(other(&live, "a"), Some(vec![0.0]), "it was forgotten");
        let many: Vec<_> = (0..40).map(|number| figure(&number.to_string(), 1.0)).collect();
        live.end_interval(&many, 1);
        assert_eq!(live.figures().count(), MAX_FIGURES);
    }

    #[test]
    fn a_template_that_loses_its_type_is_forgotten_in_every_window() {
        let mut live = live(1);
        (0..3).for_each(|_| live.count_path("/old"));
        live.end_interval(&[figure("a", 1.0), figure("b", 1.0)], 1);
        assert_eq!(column(&live, "b", "path:/old"), Some(vec![2.0]));
        (0..9).for_each(|_| live.count_path("/new"));
        live.end_interval(&[figure("a", 1.0), figure("b", 1.0)], 1);
        for name in ["a", "b"] {
            assert_eq!(column(&live, name, "path:/old"), None);
            let new = column(&live, name, "path:/new").expect("it has the type");
            assert_eq!(new[0], 0.0, "{name}: not the requests of the other");
            let all = new[1] + column(&live, name, "other").expect("other")[1];
            assert_eq!(all, 9.0, "{name}: none is lost");
        }
    }

    #[test]
    fn a_class_that_a_reload_removes_gives_its_number_to_another() {
        let mut live = live(1);
        let [old, new]: [Arc<str>; 2] = ["old".into(), "new".into()];
        live.count_class(&old, 5);
        live.end_interval(&[figure("a", 1.0)], 1);
        live.keep_classes(|name| name == "new");
        live.count_class(&new, 7);
        live.end_interval(&[figure("a", 1.0)], 1);
        assert_eq!(column(&live, "a", "class:old"), None);
        assert_eq!(column(&live, "a", "class:new"), Some(vec![0.0, 7.0]));
        assert_eq!(live.types(), 1);
    }

    #[test]
    fn a_late_tick_spreads_what_it_has_counted() {
        let mut live = live(1);
        live.count_other(7);
        live.end_interval(&[figure("a", 2.0)], 3);
        assert_eq!(column(&live, "a", "other"), Some(vec![2.0, 2.0, 3.0]));
        live.count_other(7);
        live.skip_interval();
        live.end_interval(&[figure("a", 2.0)], 1);
        assert_eq!(column(&live, "a", "other"), Some(vec![2.0, 2.0, 3.0, 0.0]));
    }
}
