//! Request types learned from URLs: path templates (Porter & Katz, III-A: "count the number of each request
//! type"; the paper's types are the names of its scripts).
//!
//! ```text
//! GET /item/4711/bids?page=2&sort=price ─► GET /item/{n}/bids?sort        (with `sort` as a parameter)
//! ```
//!
//! What is different with each request is folded: numbers, UUIDs, hashes, ids with digits, tokens. Everything
//! else of a path stays, and nothing of a query but the names of parameters that the operator chose.
//!
//! **Which templates have a type of their own** is decided by frequency: at most `max_types`; the others
//! share one type, [`OTHER`]. Templates without a type are counted by Space-Saving (Metwally, Agrawal & El
//! Abbadi, 2005), which keeps a bounded number of counters, and knows of each how many requests it surely
//! had. Only those count here. A template gets a type that is free at its second request, and else the type
//! that is least frequent, if it surely had twice as many requests. Paths that are random never come twice,
//! so that they take no type from real ones, however many they are. All counts are halved from time to time,
//! so that a mix of the past does not stay.

use std::collections::BTreeMap;

/// The type of all templates that have no type of their own.
pub const OTHER: usize = 0;

/// Longest template in bytes; paths are cut at a segment.
pub const MAX_LENGTH: usize = 160;

/// Longest part of a segment that is kept.
const MAX_PART: usize = 32;

/// Letters in a row that no word has.
const TOKEN: usize = 24;

/// Counters of templates without a type, for each type. Templates with more than 1/(4 × types) of the
/// requests without a type are found.
const COUNTERS_PER_TYPE: usize = 4;

/// Requests for each type after which all counts are halved: with 200 types, 200,000.
const HALVED_AFTER: u64 = 1_000;

/// How templates are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateSettings {
    /// Templates with a type of their own.
    pub max_types: usize,
    /// Parameters of the query whose name is kept.
    pub parameters: Vec<String>,
    /// Whether the same path with another method is another template.
    pub with_method: bool,
}

impl Default for TemplateSettings {
    fn default() -> Self {
        Self { max_types: 200, parameters: Vec::new(), with_method: false }
    }
}

/// The type of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestType {
    /// [`OTHER`], or 1..=`max_types`.
    pub index: usize,
    /// From this request on the index means another template: its counts so far are not this template's.
    pub is_new: bool,
}

/// A template's counter.
#[derive(Clone, Debug)]
struct Counter {
    template: String,
    /// Requests at most; and how many of them may have been another template's.
    count: u64,
    error: u64,
}

/// Templates and their types, learned from requests.
#[derive(Clone, Debug)]
pub struct Templates {
    settings: TemplateSettings,
    /// Counters of templates with a type; the type is the index and one.
    types: Vec<Counter>,
    /// Counters of those without.
    others: Vec<Counter>,
    /// Where a template's counter is.
    places: BTreeMap<String, Place>,
    /// Where the search for a counter with the least count goes on, and that count or less.
    cursor: usize,
    least: u64,
    /// Requests until counts are halved.
    until_halved: u64,
    scratch: String,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Type(usize),
    Other(usize),
}

impl Templates {
    pub fn new(settings: TemplateSettings) -> Self {
        Self {
            until_halved: Self::period(&settings),
            settings,
            types: Vec::new(),
            others: Vec::new(),
            places: BTreeMap::new(),
            cursor: 0,
            least: 0,
            scratch: String::new(),
        }
    }

    /// The template of a type; `None` for [`OTHER`] and for types that nothing has yet.
    pub fn name(&self, index: usize) -> Option<&str> {
        Some(self.types.get(index.checked_sub(1)?)?.template.as_str())
    }

    /// Types so far, [`OTHER`] among them.
    pub fn len(&self) -> usize {
        self.types.len() + 1
    }

    /// Whether all requests had the same type so far.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Counts a request, by its method and its target or URL.
    pub fn observe(&mut self, method: &str, target: &str) -> RequestType {
        let mut template = std::mem::take(&mut self.scratch);
        template.clear();
        fold(&self.settings, method, target, &mut template);
        let seen = self.observe_template(&template);
        self.scratch = template;
        seen
    }

    /// Counts a request by its template, for those who keep the templates of paths that come often.
    pub fn observe_template(&mut self, template: &str) -> RequestType {
        self.halve_in_time();
        match self.places.get(template).copied() {
            Some(Place::Type(at)) => {
                self.types[at].count += 1;
                RequestType { index: at + 1, is_new: false }
            }
            Some(Place::Other(at)) => {
                self.others[at].count += 1;
                self.promote(at).unwrap_or(RequestType { index: OTHER, is_new: false })
            }
            None => {
                self.count_first(template);
                RequestType { index: OTHER, is_new: false }
            }
        }
    }

    /// A template that has no counter yet takes a free one, or that with the least count (Space-Saving).
    fn count_first(&mut self, template: &str) {
        let at = if self.others.len() < COUNTERS_PER_TYPE * self.settings.max_types {
            self.others.push(Counter { template: template.into(), count: 1, error: 0 });
            self.others.len() - 1
        } else {
            let Some(at) = self.least_of_others() else { return };
            let counter = &mut self.others[at];
            self.places.remove(&counter.template);
            *counter = Counter { template: template.into(), count: counter.count + 1, error: counter.count };
            at
        };
        self.places.insert(template.into(), Place::Other(at));
    }

    /// A counter with the least count. Counts only grow, so that each is looked at once for each least count.
    fn least_of_others(&mut self) -> Option<usize> {
        let size = self.others.len();
        for step in 0..size {
            let at = (self.cursor + step) % size;
            if self.others[at].count <= self.least {
                self.cursor = at;
                return Some(at);
            }
        }
        let (at, counter) = self.others.iter().enumerate().min_by_key(|(_, counter)| counter.count)?;
        (self.cursor, self.least) = (at, counter.count);
        Some(at)
    }

    /// Gives a template a type, if it is frequent enough.
    fn promote(&mut self, at: usize) -> Option<RequestType> {
        let sure = self.others[at].count - self.others[at].error;
        // Looked at when it has doubled: the types are gone through.
        if sure < 2 || !sure.is_power_of_two() {
            return None;
        }
        let index = if self.types.len() < self.settings.max_types {
            self.types.push(Counter { template: String::new(), count: 0, error: 0 });
            self.types.len() - 1
        } else {
            let (index, rarest) = self.types.iter().enumerate().min_by_key(|(_, counter)| counter.count)?;
            if sure < 2 * rarest.count.max(1) {
                return None;
            }
            self.places.remove(&rarest.template);
            index
        };
        let counter = self.others.swap_remove(at);
        if let Some(moved) = self.others.get(at) {
            self.places.insert(moved.template.clone(), Place::Other(at));
        }
        self.places.insert(counter.template.clone(), Place::Type(index));
        self.types[index] = Counter { count: sure, error: 0, ..counter };
        // A counter that is free has a count of zero.
        self.least = 0;
        Some(RequestType { index: index + 1, is_new: true })
    }

    fn halve_in_time(&mut self) {
        self.until_halved -= 1;
        if self.until_halved > 0 {
            return;
        }
        self.until_halved = Self::period(&self.settings);
        for counter in self.types.iter_mut().chain(&mut self.others) {
            let sure = (counter.count - counter.error) / 2;
            counter.count /= 2;
            counter.error = counter.count - sure;
        }
        self.least = 0;
    }

    fn period(settings: &TemplateSettings) -> u64 {
        HALVED_AFTER * settings.max_types.max(1) as u64
    }
}

/// The template of a request, at most [`MAX_LENGTH`] bytes of printable ASCII.
pub fn template(settings: &TemplateSettings, method: &str, target: &str) -> String {
    let mut out = String::new();
    fold(settings, method, target, &mut out);
    out
}

fn fold(settings: &TemplateSettings, method: &str, target: &str, out: &mut String) {
    if settings.with_method {
        let is_method =
            (1..=MAX_PART).contains(&method.len()) && method.bytes().all(|b| b.is_ascii_uppercase());
        out.push_str(if is_method { method } else { "{method}" });
        out.push(' ');
    }
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // A URL: scheme and host go.
    let path = match path.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("", |slash| &rest[slash..]),
        _ => path,
    };
    let mut segments = path.split('/').filter(|segment| !segment.is_empty()).peekable();
    if segments.peek().is_none() {
        out.push('/');
    }
    let ends_with_slash = path.ends_with('/');
    while let Some(segment) = segments.next() {
        let before = out.len();
        out.push('/');
        fold_segment(segment, out);
        if segments.peek().is_none() && ends_with_slash {
            out.push('/');
        }
        if out.len() > MAX_LENGTH - CUT.len() {
            out.truncate(before);
            out.push_str(CUT);
            return;
        }
    }
    let given = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let mut separator = '?';
    for name in settings.parameters.iter().filter(|name| given(name)) {
        if out.len() + 1 + name.len() > MAX_LENGTH {
            break;
        }
        out.push(separator);
        out.push_str(name);
        separator = '&';
    }
}

/// What stands for the rest of a path that is too long.
const CUT: &str = "/{rest}";

/// Folds a segment part by part: an extension says what kind of page it is, as does a name before a hash.
fn fold_segment(segment: &str, out: &mut String) {
    // Parameters of a segment (`;jsessionid=…`) are a session's.
    let segment = segment.split(';').next().unwrap_or_default();
    if is_number(segment) {
        out.push_str("{n}");
        return;
    }
    let start = out.len();
    let parts = segment.split('.').count();
    for (i, part) in segment.split('.').enumerate() {
        if i > 0 {
            out.push('.');
        }
        if i > 0 && i + 1 == parts && is_extension(part) {
            out.push_str(part);
        } else {
            fold_part(part, out);
        }
    }
    if out.len() - start > 2 * MAX_PART {
        out.truncate(start);
        out.push_str("{token}");
    }
}

fn fold_part(part: &str, out: &mut String) {
    let bytes = part.as_bytes();
    let has_digits = |text: &str| text.bytes().any(|b| b.is_ascii_digit());
    // Without the number at its end, which may be long.
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_~!$&'()*+,=:@".contains(b);
    if is_uuid(bytes) {
        out.push_str("{uuid}");
    } else if name.len() > MAX_PART && !bytes.iter().all(u8::is_ascii_hexdigit) || !bytes.iter().all(is_plain)
    {
        out.push_str("{token}");
    } else if is_number(part) {
        out.push_str("{n}");
    } else if bytes.len() >= 8 && bytes.iter().all(u8::is_ascii_hexdigit) {
        out.push_str("{hash}");
    } else if !has_digits(part) {
        let is_token = bytes.len() >= TOKEN && bytes.iter().all(u8::is_ascii_alphabetic);
        out.push_str(if is_token { "{token}" } else { part });
    } else if is_version(bytes) {
        out.push_str(part);
    } else {
        // A name and a number, such as `item-4711`; anything else with digits is an id.
        if has_digits(name) || name.len() > TOKEN {
            out.push_str("{id}");
        } else {
            out.push_str(name);
            out.push_str("{n}");
        }
    }
}

/// Digits, also with signs between them, such as dates and coordinates.
fn is_number(part: &str) -> bool {
    part.bytes().any(|b| b.is_ascii_digit())
        && part.bytes().all(|b| b.is_ascii_digit() || b"-_.,:+".contains(&b))
}

fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// A version of an interface (`v2`), of which there are few.
fn is_version(bytes: &[u8]) -> bool {
    matches!(bytes, [b'v' | b'V', digits @ ..] if digits.len() <= 2 && digits.iter().all(u8::is_ascii_digit))
}

/// Such as `html`, `mp4`, `woff2`.
fn is_extension(part: &str) -> bool {
    let bytes = part.as_bytes();
    (2..=5).contains(&bytes.len())
        && bytes[0].is_ascii_alphabetic()
        && bytes.iter().all(u8::is_ascii_alphanumeric)
        && bytes.iter().filter(|b| b.is_ascii_digit()).count() <= 1
}
