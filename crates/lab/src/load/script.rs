//! The requests of each step of each kind of visitor, checked before the run.

use std::borrow::Cow;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Uri};

use crate::client::Order;
use crate::crowd::VisitorMix;
use crate::scenario::{Kind, Step};
use crate::visitor::RequestKind;

/// The placeholder of a visitor's own number.
const NUMBER: &str = "{n}";

#[derive(Debug, thiserror::Error)]
#[error("visitor {kind:?}, step {step}: expected {expected}, got {got:?}")]
pub struct BadStep {
    kind: String,
    /// From 1, as people count.
    step: usize,
    expected: &'static str,
    got: String,
}

/// All that the mix sends.
pub(super) struct Script(Vec<Vec<Line>>);

pub(super) struct Line {
    program: bool,
    method: Method,
    path: Text,
    form: Option<Text>,
}

/// Text in which a number may be missing.
struct Text {
    text: Box<str>,
    numbered: bool,
}

impl Script {
    pub(super) fn new(mix: &VisitorMix) -> Result<Self, BadStep> {
        let kinds = mix.kinds.iter().map(|kind| {
            let steps = kind.steps.iter().enumerate();
            steps.map(|(i, step)| Line::new(kind, i + 1, step)).collect::<Result<_, _>>()
        });
        Ok(Self(kinds.collect::<Result<_, _>>()?))
    }

    pub(super) fn line(&self, kind: u32, step: u8) -> &Line {
        &self.0[kind as usize][usize::from(step)]
    }
}

impl Text {
    fn new(text: &str) -> Self {
        Self { text: text.into(), numbered: text.contains(NUMBER) }
    }

    fn with(&self, number: u32) -> Cow<'_, str> {
        match self.numbered {
            true => self.text.replace(NUMBER, &number.to_string()).into(),
            false => Cow::Borrowed(&self.text),
        }
    }
}

impl Line {
    fn new(kind: &Kind, number: usize, step: &Step) -> Result<Self, BadStep> {
        let wrong = |expected, got: &str| BadStep {
            kind: kind.name.clone(),
            step: number,
            expected,
            got: got.to_owned(),
        };
        let method: Method = step.method.parse().map_err(|_| wrong("a method", &step.method))?;
        if method == Method::CONNECT {
            return Err(wrong("a method other than CONNECT, which asks for a tunnel", &step.method));
        }
        if local(&step.path.replace(NUMBER, "0")).is_none() {
            return Err(wrong("a path, beginning with a slash", &step.path));
        }
        let form = step.form.as_deref().map(Text::new);
        Ok(Self { program: !kind.browser, method, path: Text::new(&step.path), form })
    }

    /// The page's path and query, for the visitor with this number.
    pub(super) fn page(&self, number: u32) -> Cow<'_, str> {
        self.path.with(number)
    }

    /// The request for the page, at a path that may also carry a ticket; or for its status document.
    pub(super) fn order(&self, ask: RequestKind, uri: Uri, number: u32) -> Order {
        let program = self.program;
        if ask == RequestKind::Status {
            return Order { program, ..Order::get(ask, uri) };
        }
        let form = self.form.as_ref().map(|form| Bytes::from(form.with(number).into_owned()));
        Order { program, method: self.method.clone(), form, ..Order::get(ask, uri) }
    }
}

pub(super) fn local(path: &str) -> Option<Uri> {
    let path: PathAndQuery = path.starts_with('/').then(|| path.parse().ok())??;
    Some(Uri::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(steps: Vec<Step>) -> VisitorMix {
        VisitorMix { kinds: vec![Kind { steps, name: "buyer".into(), ..Kind::default() }] }
    }

    fn step(method: &str, path: &str, form: Option<&str>) -> Step {
        Step { method: method.into(), path: path.into(), form: form.map(Into::into), ..Step::default() }
    }

    #[test]
    fn steps_become_requests() {
        let steps = vec![
            step("GET", "/", None),
            step("POST", "/bid/{n}?again={n}", Some("item={n}")),
            step("POST", "/a", Some("x=1")),
        ];
        let script = Script::new(&mix(steps)).expect("a script");
        let told = |step| {
            let line = script.line(0, step);
            let order = line.order(RequestKind::Page, local(&line.page(42)).expect("a path"), 42);
            (order.method.to_string(), order.uri.to_string(), order.form)
        };
        assert_eq!(told(0), ("GET".into(), "/".into(), None));
        assert_eq!(told(1), ("POST".into(), "/bid/42?again=42".into(), Some("item=42".into())));
        assert_eq!(told(2), ("POST".into(), "/a".into(), Some("x=1".into())));
        // Two slashes name no host.
        assert_eq!(local("//x/y").map(|uri| uri.authority().is_none()), Some(true));
    }

    #[test]
    fn requests_that_cannot_be_sent_are_refused() {
        for (bad, expected) in [
            (step("G ET", "/", None), "a method"),
            (step("CONNECT", "/", None), "other than CONNECT"),
            (step("GET", "index.html", None), "a path"),
            (step("GET", "/a b", None), "a path"),
            (step("GET", "http://elsewhere/", None), "a path"),
            (step("GET", "", None), "a path"),
        ] {
            let error = Script::new(&mix(vec![step("GET", "/", None), bad])).err().expect("refused");
            let text = error.to_string();
            assert!(text.starts_with("visitor \"buyer\", step 2: expected"), "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
}
