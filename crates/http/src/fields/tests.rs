//! Field lines behave like a list of pairs, whatever is done to them.

use proptest::prelude::*;

use super::*;
use crate::name;

fn written(fields: &Fields) -> String {
    let mut out = Vec::new();
    fields.write_to(&mut out);
    String::from_utf8(out).unwrap()
}

fn sample() -> Fields {
    let mut fields = Fields::new();
    for (name, value) in [("host", "a"), ("cookie", "x=1"), ("x-a", "1"), ("cookie", "y=2"), ("X-A", "2")] {
        fields.append(Name::of(name), value.as_bytes());
    }
    fields
}

#[test]
fn lines_are_found_in_order_and_without_case() {
    let fields = sample();
    assert_eq!(fields.len(), 5);
    assert_eq!(fields.get(name::COOKIE), Some(&b"x=1"[..]));
    assert_eq!(fields.get_all(name::COOKIE).collect::<Vec<_>>(), [b"x=1", b"y=2"]);
    assert_eq!(fields.get_all(name::COOKIE).next_back(), Some(&b"y=2"[..]));
    assert_eq!(fields.get_all("x-a".into()).collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(fields.get(Name::Other("cookie")), Some(&b"x=1"[..]), "a known name by its text");
    assert!(!fields.contains(name::VIA) && fields.get("x-b".into()).is_none());
}

#[test]
fn a_set_line_takes_the_place_of_the_first() {
    let mut fields = sample();
    fields.set(name::COOKIE, b" z \t");
    assert_eq!(written(&fields), "host: a\r\ncookie: z\r\nx-a: 1\r\nX-A: 2\r\n");
    fields.set(name::VIA, b"1.1 gate");
    assert!(fields.remove("x-a".into()) && !fields.remove("x-a".into()));
    assert_eq!(written(&fields), "host: a\r\ncookie: z\r\nvia: 1.1 gate\r\n");
    assert_eq!(fields.len(), 3);
    fields.clear();
    assert!(fields.is_empty() && written(&fields).is_empty() && !fields.contains(name::HOST));
}

#[test]
fn what_was_removed_can_come_again() {
    let mut fields = sample();
    fields.remove(name::COOKIE);
    assert!(!fields.contains(name::COOKIE));
    fields.append(name::COOKIE, b"n=3");
    assert_eq!(fields.get(name::COOKIE), Some(&b"n=3"[..]));
    fields.retain(|name, _, _| name != b"host");
    assert_eq!(fields.get(name::HOST), None);
    let mut all = Fields::new();
    all.append(name::HOST, b"b");
    all.extend_from(&fields);
    assert_eq!(written(&all), "host: b\r\nx-a: 1\r\nX-A: 2\r\ncookie: n=3\r\n");
    assert_eq!(all.get(name::COOKIE), Some(&b"n=3"[..]));
}

/// As of trailers that are dropped.
#[test]
fn text_that_is_no_line_is_not_written() {
    let mut fields = Fields::new();
    for (start, line) in [(0, "a: 1"), (18, "b: 3")] {
        fields.push(Line::new(start, line.as_bytes(), 1, None).0);
    }
    fields.fill(b"a: 1\r\ndropped: 2\r\nb: 3\r\ndropped: 4\r\n");
    assert_eq!(written(&fields), "a: 1\r\nb: 3\r\n");
}

#[test]
fn text_is_only_what_can_be_seen() {
    let mut fields = Fields::new();
    fields.append(name::REFERER, "caf\u{e9}".as_bytes());
    fields.append(name::SERVER, b"a\tb");
    assert_eq!(fields.get_str(name::REFERER), None);
    assert_eq!(fields.get_str(name::SERVER), Some("a\tb"));
}

#[test]
fn lists_have_members_over_all_lines() {
    let mut fields = Fields::new();
    fields.append(name::CONNECTION, b"a, ,b");
    fields.append(name::CONNECTION, b"Close");
    assert!(fields.lists(name::CONNECTION, "close") && fields.lists(name::CONNECTION, "b"));
    assert!(!fields.lists(name::CONNECTION, "clos") && !fields.lists(name::CONNECTION, ""));
}

#[test]
#[cfg(not(debug_assertions))]
fn no_line_can_be_smuggled_in() {
    let mut fields = Fields::new();
    fields.append(name::HOST, b"a\r\nx: y");
    fields.append(Name::Other("a b"), b"1");
    fields.append(Name::Other(""), b"1");
    assert!(fields.is_empty());
}

#[derive(Clone, Debug)]
enum Edit {
    Append(usize, u8),
    Set(usize, u8),
    Remove(usize),
    Retain(u8),
    Double,
}

const NAMES: [&str; 6] = ["host", "cookie", "x-a", "via", "x-b", "te"];

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0..NAMES.len(), any::<u8>()).prop_map(|(n, v)| Edit::Append(n, v)),
        2 => (0..NAMES.len(), any::<u8>()).prop_map(|(n, v)| Edit::Set(n, v)),
        2 => (0..NAMES.len()).prop_map(Edit::Remove),
        1 => any::<u8>().prop_map(Edit::Retain),
        1 => Just(Edit::Double),
    ]
}

proptest! {
    #[test]
    fn edits_do_what_they_do_to_a_list_of_pairs(edits in prop::collection::vec(edit(), 0..40)) {
        let mut fields = Fields::new();
        let mut model: Vec<(&str, String)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Append(n, v) => {
                    fields.append(NAMES[n].into(), v.to_string().as_bytes());
                    model.push((NAMES[n], v.to_string()));
                }
                Edit::Set(n, v) => {
                    fields.set(NAMES[n].into(), v.to_string().as_bytes());
                    match model.iter().position(|(name, _)| *name == NAMES[n]) {
                        Some(at) => {
                            let mut later = model.split_off(at + 1);
                            later.retain(|(name, _)| *name != NAMES[n]);
                            model[at].1 = v.to_string();
                            model.extend(later);
                        }
                        None => model.push((NAMES[n], v.to_string())),
                    }
                }
                Edit::Remove(n) => {
                    let had = model.iter().any(|(name, _)| *name == NAMES[n]);
                    prop_assert_eq!(fields.remove(NAMES[n].into()), had);
                    model.retain(|(name, _)| *name != NAMES[n]);
                }
                Edit::Retain(least) => {
                    let keeps = |v: &str| v.parse::<u8>().unwrap() >= least;
                    fields.retain(|_, _, value| keeps(std::str::from_utf8(value).unwrap()));
                    model.retain(|(_, value)| keeps(value));
                }
                Edit::Double if model.len() < 50 => {
                    let copy = fields.clone();
                    fields.extend_from(&copy);
                    model.extend(model.clone());
                }
                Edit::Double => {}
            }
            prop_assert_eq!(fields.len(), model.len());
            for name in NAMES {
                let values: Vec<&[u8]> = fields.get_all(name.into()).collect();
                let of_model = model.iter().filter(|(n, _)| *n == name).map(|(_, v)| v.as_bytes());
                prop_assert_eq!(fields.get(name.into()), of_model.clone().next());
                prop_assert_eq!(values, of_model.collect::<Vec<_>>());
            }
            let text: String = model.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
            prop_assert_eq!(written(&fields), text);
        }
    }
}
