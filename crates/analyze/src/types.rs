//! Types of requests: classes, or path templates as the gate has them (`tidegate_core::correlate`).

use std::collections::HashMap;
use std::rc::Rc;

use tidegate_core::correlate::templates::{OTHER, RequestType, TemplateSettings, Templates, template};

use crate::log::Request;

/// Most types. A site has dozens; more have too few requests each to say anything, and a table of them is
/// not read.
const MAX_TYPES: usize = 200;
/// Paths whose template is remembered. When there are more, all are forgotten: memory stays flat.
const REMEMBERED: usize = 1 << 16;
/// Longer paths are not remembered.
const MAX_REMEMBERED_PATH: usize = 256;
/// The type of what has no type of its own.
pub const OTHERS: &str = "(others)";

/// What requests are told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Path,
    /// The class that Tidegate's own log names.
    Class,
}

/// Names of the types, and which request is of which. The number [`OTHER`] is that of [`OTHERS`].
pub struct Types {
    by: By,
    templates: Templates,
    by_path: HashMap<Box<[u8]>, Rc<str>>,
    classes: Vec<String>,
    by_class: HashMap<String, usize>,
}

impl Types {
    pub fn new(by: By) -> Self {
        Self {
            by,
            templates: Templates::new(settings()),
            by_path: HashMap::new(),
            classes: vec![OTHERS.into()],
            by_class: HashMap::new(),
        }
    }

    pub fn names(&self) -> Vec<String> {
        if self.by == By::Class {
            return self.classes.clone();
        }
        let name = |number| self.templates.name(number).unwrap_or(OTHERS).to_owned();
        (0..self.templates.len()).map(name).collect()
    }

    /// The type's number, and whether it means another type from now on; `None`: the line names no class.
    pub fn of(&mut self, request: &Request<'_>) -> Option<RequestType> {
        if self.by == By::Class {
            let class = request.class.as_deref()?;
            let index = self.by_class.get(class).copied().unwrap_or_else(|| self.number(class));
            return Some(RequestType { index, is_new: false });
        }
        let path = request.path.as_ref();
        if let Some(known) = self.by_path.get(path) {
            return Some(self.templates.observe_template(known));
        }
        let folded: Rc<str> = template(&settings(), "", &String::from_utf8_lossy(path)).into();
        let seen = self.templates.observe_template(&folded);
        if path.len() <= MAX_REMEMBERED_PATH {
            if self.by_path.len() >= REMEMBERED {
                self.by_path.clear();
            }
            self.by_path.insert(path.into(), folded);
        }
        Some(seen)
    }

    fn number(&mut self, class: &str) -> usize {
        if self.classes.len() > MAX_TYPES {
            return OTHER;
        }
        self.classes.push(class.to_owned());
        self.by_class.insert(class.to_owned(), self.classes.len() - 1);
        self.classes.len() - 1
    }
}

fn settings() -> TemplateSettings {
    TemplateSettings { max_types: MAX_TYPES, ..TemplateSettings::default() }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn of(types: &mut Types, path: String, class: Option<&'static str>) -> RequestType {
        let class = class.map(Cow::Borrowed);
        let request = Request { at_us: 0, path: Cow::Owned(path.into()), class, kept_from_origin: false };
        types.of(&request).expect("a type")
    }

    #[test]
    fn the_number_of_types_and_the_memory_are_bounded() {
        let mut types = Types::new(By::Path);
        for number in 0..REMEMBERED + 10 {
            of(&mut types, format!("/page-{}x{}", number / 900, number % 900), None);
        }
        let words = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for (first, second, third) in (0..512).map(|n| (n / 64, n / 8 % 8, n % 8)).chain([(0, 0, 0); 3]) {
            let path = format!("/{}/{}/{}", words[first], words[second], words[third]);
            of(&mut types, path.clone(), None);
            of(&mut types, path, None);
        }
        assert_eq!(types.names().len(), MAX_TYPES + 1);
        assert_eq!(types.names()[OTHER], OTHERS);
        assert!(types.by_path.len() <= REMEMBERED);
    }

    #[test]
    fn a_frequent_path_takes_the_type_of_a_rare_one() {
        let mut types = Types::new(By::Path);
        let word =
            |n: usize| ["a", "b", "c", "d", "e", "f"].map(|word| word.repeat(1 + n % 7))[n / 7 % 6].clone();
        let junk = |n: usize| format!("/{}/{}/{}", word(n % 42), word(n / 42 % 42), word(n / 1764));
        for n in 0..MAX_TYPES + 50 {
            of(&mut types, junk(n), None);
            of(&mut types, junk(n), None);
        }
        let seen: Vec<_> = (0..8).map(|_| of(&mut types, "/shop".into(), None)).collect();
        assert_eq!(seen.iter().filter(|seen| seen.is_new).count(), 1, "{seen:?}");
        assert!(types.names().iter().any(|name| name == "/shop"));
    }

    #[test]
    fn classes_beyond_the_bound_share_a_type() {
        let mut types = Types::new(By::Class);
        let names: Vec<&'static str> =
            (0..=MAX_TYPES).map(|n| &*Box::leak(format!("class-{n}").into_boxed_str())).collect();
        let numbers: Vec<_> = names.iter().map(|name| of(&mut types, "/".into(), Some(name)).index).collect();
        assert_eq!((numbers[0], numbers[MAX_TYPES - 1], numbers[MAX_TYPES]), (1, MAX_TYPES, OTHER));
        assert_eq!(of(&mut types, "/".into(), Some(names[3])).index, 4);
    }
}
