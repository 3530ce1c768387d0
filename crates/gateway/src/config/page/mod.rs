//! What a waiting visitor gets: page, API answer and status document (DESIGN, "What the visitor sees").
//!
//! ```text
//! settings ─► template ─► compiled once per language and kind ─► render: segments + a few numbers ─► bytes
//!                locale ─► words for every duration ┘
//! ```
//! This module writes bodies. `proxy` writes status codes and fields; the core gives times and positions.

use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha2::{Digest, Sha256};

mod escape;
mod form;
mod locale;
mod pieces;
mod poll;
mod problem;
mod render;
mod template;
mod view;

pub use form::{KeptForm, keep};
pub use locale::Lang;
pub use pieces::Pieces;
pub use poll::{poll_interval, reload_seconds};
pub use problem::{retry_after, told_seconds};
pub use view::{Kind, State, Status, View};

use locale::Words;
use template::{Compiled, Slot, Template, squeeze};

/// Largest logo. Every waiting visitor gets it inside the page, which without it fits one TCP window.
const MAX_LOGO_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("{path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path}:{line}: expected {expected}")]
    Template {
        path: String,
        /// Where, from 1.
        line: usize,
        /// What was expected, what was found, what may have been meant.
        expected: String,
    },
    #[error("{path}: the slot `{{{{{slot}}}}}` is missing: {why}")]
    Missing { path: String, slot: &'static str, why: &'static str },
    /// A slot where escaping for HTML does not protect.
    #[error("{path}: expected no slot inside <{element}>: put it into the page and read it from there")]
    InScript { path: String, element: String },
    #[error("{path}: expected a logo of at most {max} bytes, found {bytes}")]
    LogoSize { path: String, bytes: usize, max: usize },
    #[error("{path}: expected an SVG or a PNG image")]
    LogoKind { path: String },
}

pub struct Pages {
    languages: Vec<Language>,
    style: Bytes,
    policy: String,
    policy_form: String,
}

struct Language {
    words: Words,
    script: Bytes,
    /// In the order of [`Kind::ALL`].
    pages: Vec<Compiled>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Pages {
    pub fn new(room: &tidegate_settings::Room) -> Result<Self, PageError> {
        let (path, source) = match &room.template {
            None => ("page.html".to_owned(), squeeze(include_str!("page.html"))),
            Some(path) => {
                let name = path.display().to_string();
                let read = std::fs::read_to_string(path);
                (name.clone(), read.map_err(|source| PageError::Read { path: name, source })?)
            }
        };
        let template = Template::parse(&path, &source)?;
        let logo =
            room.logo.as_deref().map(|logo| logo_image(logo, &room.title)).transpose()?.unwrap_or_default();
        // In a style sheet line breaks mean nothing.
        let css = squeeze(include_str!("page.css")).replace('\n', "");
        let js = squeeze(include_str!("page.js"));
        let languages =
            Lang::ALL.into_iter().map(|lang| Language::new(lang, &template, room, &logo, &js)).collect();
        let mut styles = template.inline(&path, "style")?;
        let mut scripts = template.inline(&path, "script")?;
        let style = format!("<style>{css}</style>").into();
        if template.uses(Slot::Style) {
            styles.push(css);
        }
        if template.uses(Slot::Script) {
            scripts.push(js);
        }
        let policy = content_policy(&scripts, &styles);
        Ok(Self { languages, style, policy: format!("{policy}; form-action 'self'"), policy_form: policy })
    }

    pub fn language(&self, accept_language: Option<&str>) -> Lang {
        Lang::negotiate(accept_language)
    }

    /// `Content-Security-Policy` of the page.
    ///
    /// With a kept form it does not restrict where forms may go: browsers apply `form-action` to the origin's
    /// redirect after the form too, and a checkout that leads to a payment service would fail.
    pub fn policy(&self, with_form: bool) -> &str {
        if with_form { &self.policy_form } else { &self.policy }
    }
}

impl Language {
    fn new(lang: Lang, template: &Template, room: &tidegate_settings::Room, logo: &str, js: &str) -> Self {
        let s = lang.strings();
        let compile = |kind: Kind| {
            let (headline, message) = heading(lang, kind);
            let word = |name: &str| match name {
                "lang" => lang.tag().to_owned(),
                "dir" => lang.dir().to_owned(),
                "title" => escaped(&room.title),
                "logo" => logo.to_owned(),
                "headline" => escaped(headline),
                "message" => escaped(message),
                "notice" => escaped(notice(lang, kind).unwrap_or_default()),
                "next" => escaped(s.next),
                "text_expected" => escaped(s.expected),
                "text_ahead" => escaped(s.ahead),
                "text_waited" => escaped(s.waited),
                "text_retry" => escaped(s.retry),
                _ => unreachable!("every slot that template.rs names without a Slot is above"),
            };
            let keep = |section: &str| match section {
                "has_place" => kind.has_place(),
                "has_notice" => notice(lang, kind).is_some(),
                "has_title" => !room.title.is_empty(),
                // Both tell when the page tries again.
                "is_full" => matches!(kind, Kind::Full | Kind::Overloaded),
                _ => kind == Kind::Forbidden,
            };
            template.compile(word, keep)
        };
        Self {
            words: Words::new(s),
            script: script(lang, js).into(),
            pages: Kind::ALL.into_iter().map(compile).collect(),
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    escape::html(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The headline, and the sentence below it.
fn heading(lang: Lang, kind: Kind) -> (&'static str, &'static str) {
    let s = lang.strings();
    match kind {
        Kind::Waiting | Kind::Replaced | Kind::Late => (s.waiting, s.waiting_text),
        Kind::Full => (s.full, s.full_text),
        Kind::Unavailable => (s.unavailable, s.unavailable_text),
        Kind::Forbidden => (s.forbidden, s.forbidden_text),
        Kind::Overloaded => (s.overloaded, s.overloaded_text),
    }
}

fn notice(lang: Lang, kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Replaced => Some(lang.strings().replaced),
        Kind::Late => Some(lang.strings().late),
        _ => None,
    }
}

fn script(lang: Lang, js: &str) -> Vec<u8> {
    let s = lang.strings();
    let strings = [
        ("about", s.about),
        ("soon", s.soon),
        ("left", s.left),
        ("next", s.you_next),
        ("turn", s.turn),
        ("longer", s.longer),
        ("lost", s.lost),
        ("back", s.back),
        ("down", s.down),
        ("sent", s.sent),
        ("headline", s.waiting),
        ("message", s.waiting_text),
    ];
    let mut out = b"<script type=\"application/json\" id=\"tidegate-text\">{".to_vec();
    for (i, (name, value)) in strings.into_iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        out.extend_from_slice(format!("{comma}\"{name}\":\"").as_bytes());
        escape::json(value, &mut out);
        out.push(b'"');
    }
    out.extend_from_slice(format!("}}</script>\n<script>{js}</script>").as_bytes());
    out
}

/// `Content-Security-Policy`, all but `form-action`. Code is allowed by its hash (CSP 3, 6.7.3.3): a nonce
/// would have to be made for every visitor.
fn content_policy(scripts: &[String], styles: &[String]) -> String {
    let hashes = |bodies: &[String]| match bodies {
        [] => " 'none'".to_owned(),
        _ => {
            bodies.iter().map(|body| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(body)))).collect()
        }
    };
    format!(
        "default-src 'none'; script-src{}; style-src{}; img-src data:; connect-src 'self'; base-uri 'none'; \
         frame-ancestors 'self'",
        hashes(scripts),
        hashes(styles)
    )
}

/// An `<img>` that holds the operator's logo; `alt` is the title. The type is found by content.
///
/// A browser runs no script of an SVG inside `<img>`, so the file needs no cleaning.
fn logo_image(path: &Path, alt: &str) -> Result<String, PageError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| PageError::Read { path: name.clone(), source })?;
    if bytes.len() > MAX_LOGO_BYTES {
        return Err(PageError::LogoSize { path: name, bytes: bytes.len(), max: MAX_LOGO_BYTES });
    }
    let start = bytes.trim_ascii_start().strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes.trim_ascii_start());
    let kind = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        "image/png"
    } else if start.starts_with(b"<svg") || start.starts_with(b"<?xml") || start.starts_with(b"<!--") {
        "image/svg+xml"
    } else {
        return Err(PageError::LogoKind { path: name });
    };
    let alt = escaped(alt);
    Ok(format!("<img src=\"data:{kind};base64,{}\" alt=\"{alt}\">", STANDARD.encode(&bytes)))
}

#[cfg(test)]
mod tests;
