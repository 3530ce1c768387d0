//! Renders one visitor's page: the compiled segments, and between them the visitor's own values.

use std::time::Duration;

use super::pieces::{Draft, Pieces};
use super::template::Slot;
use super::{Kind, Pages, View, escape, retry_after};

/// Upper bound of the bytes of figures, attributes and fixed markup in the slots, but for visitors' own text.
const SLOT_BYTES: usize = 2048;

impl Pages {
    /// Appends the page, making room for it at once.
    pub fn waiting(&self, v: &View, out: &mut Vec<u8>) {
        let language = &self.languages[v.lang.index()];
        out.reserve(self.own_bytes(v) + self.style.len() + language.script.len());
        let page = &language.pages[v.kind as usize];
        page.render(out, |slot, out| self.fill(slot, v, out));
    }

    /// The page to be sent: its style and script are those of all pages.
    pub fn pieces(&self, v: &View) -> Pieces {
        let language = &self.languages[v.lang.index()];
        let mut draft = Draft::default();
        draft.text.reserve(self.own_bytes(v));
        let page = &language.pages[v.kind as usize];
        page.render(&mut draft, |slot, draft| match slot {
            Slot::Style => draft.share(&self.style),
            Slot::Script => draft.share(&language.script),
            slot => self.fill(slot, v, &mut draft.text),
        });
        draft.finish()
    }

    /// Upper bound of the bytes of a page, style and script aside.
    fn own_bytes(&self, v: &View) -> usize {
        let page = &self.languages[v.lang.index()].pages[v.kind as usize];
        let form = v.form.map_or(0, |f| f.inputs.len());
        // Our own page has the target three times. An escaped byte of a URL takes at most five.
        let urls = 3 * (v.target.len() + v.ticket.map_or(0, str::len)) + v.status_path.len();
        let urls = urls + 2 * v.check_url.map_or(0, str::len);
        page.text.len() + form + 5 * urls + SLOT_BYTES
    }

    fn fill(&self, slot: Slot, v: &View, out: &mut Vec<u8>) {
        let language = &self.languages[v.lang.index()];
        let (words, strings) = (&language.words, v.lang.strings());
        match slot {
            Slot::Style => out.extend_from_slice(&self.style),
            Slot::Script => out.extend_from_slice(&language.script),
            Slot::Wait => out.extend_from_slice(words.wait(v.wait).as_bytes()),
            Slot::WaitText if v.wait.is_zero() => out.extend_from_slice(strings.soon.as_bytes()),
            Slot::WaitText => out.extend_from_slice(words.plain(v.wait).as_bytes()),
            Slot::Place => strings.grouping.write(v.place, out),
            Slot::Waited => out.extend_from_slice(words.plain(v.waited).as_bytes()),
            Slot::Left => number(out, "", 100 - progress(v)),
            // From 190, an empty dial, to 10, a full one: as in page.js.
            Slot::Level => number(out, "", 190 - 180 * progress(v) / 100),
            Slot::Target => escape::url_html(v.target, v.ticket, out),
            Slot::Data => data(v, out),
            Slot::Refresh => refresh(v, out),
            Slot::Form => action(v, out),
        }
    }
}

fn progress(v: &View) -> u64 {
    let whole = v.waited.as_millis() + v.wait.as_millis();
    (v.waited.as_millis() * 100).checked_div(whole).unwrap_or(100) as u64
}

fn number(out: &mut Vec<u8>, before: &str, n: u64) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// Attributes that the script reads.
fn data(v: &View, out: &mut Vec<u8>) {
    out.extend_from_slice(match v.kind {
        Kind::Waiting | Kind::Replaced | Kind::Late => b"data-kind=waiting".as_slice(),
        // The script treats both alike (no position, another try); measurements tell them apart.
        Kind::Full => b"data-kind=full",
        Kind::Overloaded => b"data-kind=full data-refused=1",
        Kind::Unavailable => b"data-kind=unavailable",
        Kind::Forbidden => b"data-kind=forbidden",
    });
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    number(out, " data-wait=", ms(v.wait));
    number(out, " data-waited=", ms(v.waited));
    number(out, " data-poll=", ms(v.poll));
    out.extend_from_slice(b" data-status=\"");
    escape::url_html(v.status_path, v.ticket, out);
    out.extend_from_slice(b"\" data-target=\"");
    escape::url_html(v.target, v.ticket, out);
    out.push(b'"');
    if let Some(url) = v.check_url {
        out.extend_from_slice(b" data-check=\"");
        escape::html(url, out);
        out.push(b'"');
    }
}

/// A reload for visitors without JavaScript.
fn refresh(v: &View, out: &mut Vec<u8>) {
    let Some(every) = v.refresh.filter(|_| v.form.is_none() && v.kind != Kind::Forbidden) else { return };
    number(out, "<noscript><meta http-equiv=\"refresh\" content=\"", retry_after(every));
    out.extend_from_slice(b";url=");
    match v.check_url.filter(|_| v.wait.as_secs() <= every.as_secs()) {
        // WebQ III-B: at its turn the browser goes straight to tokencheck.
        Some(url) => escape::html(url, out),
        None => escape::url_html(v.target, v.ticket, out),
    }
    out.extend_from_slice(b"\"></noscript>");
}

/// The kept form with its button, or a link, for visitors without JavaScript.
fn action(v: &View, out: &mut Vec<u8>) {
    let s = v.lang.strings();
    // A forged ticket is dropped.
    let ticket = v.ticket.filter(|_| v.kind != Kind::Forbidden);
    let label = match (v.kind, v.form) {
        (Kind::Forbidden, _) => s.restart,
        (_, Some(_)) => s.send,
        (_, None) => s.check,
    };
    if let Some(form) = v.form {
        out.extend_from_slice(
            b"<form id=\"tidegate-form\" method=\"post\" accept-charset=\"utf-8\" action=\"",
        );
        escape::url_html(v.target, ticket, out);
        out.extend_from_slice(b"\"><p>");
        out.extend_from_slice(s.form.as_bytes());
        out.extend_from_slice(b"</p>");
        out.extend_from_slice(&form.inputs);
        out.extend_from_slice(b"<noscript><p>");
        out.extend_from_slice(s.press.as_bytes());
        out.extend_from_slice(b"</p></noscript><button data-tg=\"act\">");
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(b"</button></form>");
    } else {
        out.extend_from_slice(b"<p class=\"act\" data-tg=\"act\"><a href=\"");
        escape::url_html(v.target, ticket, out);
        out.extend_from_slice(b"\">");
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(b"</a></p>");
    }
}
