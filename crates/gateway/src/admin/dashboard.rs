//! The operator's dashboard: files that are part of the program. They hold no figures, so they need no token;
//! what they show they ask for with the operator's own.

use http::HeaderValue;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::access::Rank;
use super::answer::{Outcome, Problem, document, whole};
use super::call::Call;
use super::route::{Param, Place};

pub(super) const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Scripts, styles and pictures of this address and nothing else, no script or style within the page, no
/// frames.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const FIELDS: [(HeaderName, HeaderValue); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Name, type and content of each file.
macro_rules! files {
    ($($path:literal as $media:ident,)+) => {
        &[$((file_name($path), $media, include_str!(concat!("../../../../dashboard/", $path)))),+]
    };
}

static FILES: &[(&str, &str, &str)] = files![
    "action.js" as SCRIPT,
    "api.js" as SCRIPT,
    "app.js" as SCRIPT,
    "chart.js" as SCRIPT,
    "classes.js" as SCRIPT,
    "costs.js" as SCRIPT,
    "culprits.js" as SCRIPT,
    "dialog.js" as SCRIPT,
    "dom.js" as SCRIPT,
    "effect.js" as SCRIPT,
    "format.js" as SCRIPT,
    "history.js" as SCRIPT,
    "hold.js" as SCRIPT,
    "icon.svg" as PICTURE,
    "kernel.js" as SCRIPT,
    "level.js" as SCRIPT,
    "overview.js" as SCRIPT,
    "prediction.js" as SCRIPT,
    "room.js" as SCRIPT,
    "rules.js" as SCRIPT,
    "samples.js" as SCRIPT,
    "sessions.js" as SCRIPT,
    "settings.js" as SCRIPT,
    "share.js" as SCRIPT,
    "style.css" as STYLE,
    "talkers.js" as SCRIPT,
    "throttles.js" as SCRIPT,
    "vendor/uPlot.iife.min.js" as SCRIPT,
    "vendor/uPlot.min.css" as STYLE,
];

/// A path without its folders.
const fn file_name(path: &str) -> &str {
    let bytes = path.as_bytes();
    let mut at = bytes.len();
    while at > 0 && bytes[at - 1] != b'/' {
        at -= 1;
    }
    path.split_at(at).1
}

pub(super) const FILE: Param = Param {
    name: "file",
    place: Place::Path,
    about: "A file of the dashboard.",
    schema: || serde_json::json!({ "type": "string" }),
};

fn served(media: &'static str, content: &'static str) -> Outcome {
    let mut answer = whole(media, content);
    answer.headers_mut().extend(FIELDS);
    Ok(answer)
}

/// `GET /`.
pub(super) fn page(_: &Call) -> Outcome {
    served(HTML, include_str!("../../../../dashboard/index.html"))
}

/// `GET /dashboard/{file}`.
pub(super) fn file(call: &Call) -> Outcome {
    let wanted = call.path("file");
    let found = FILES.iter().find(|(name, ..)| *name == wanted);
    let (_, media, content) = found.ok_or_else(|| Problem::not_found("the dashboard has no such file"))?;
    served(media, content)
}

/// The answer of `GET /v1/access`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Access {
    /// The token's name and the client's address, as the audit has them.
    who: String,
    /// Whether the token may make changes.
    may_write: bool,
}

/// `GET /v1/access`: what the token shown may do.
pub(super) fn access(call: &Call) -> Outcome {
    let may_write = matches!(call.rank, Rank::Local | Rank::Admin);
    Ok(document(&Access { who: call.who.clone(), may_write }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_and_its_scripts_name_is_there() {
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        let page = include_str!("../../../../dashboard/index.html");
        let of_page = page.split("\"dashboard/").skip(1).filter_map(|rest| rest.split('"').next());
        let of_scripts = FILES.iter().filter(|(_, media, _)| *media == SCRIPT).flat_map(|(.., content)| {
            content.split("from './").skip(1).filter_map(|rest| rest.split('\'').next())
        });
        let wanted: Vec<&str> = of_page.chain(of_scripts).collect();
        assert!(wanted.len() > 20, "{wanted:?}");
        assert!(wanted.iter().all(|name| names.contains(name)), "{wanted:?}");
    }

    #[test]
    fn nothing_is_written_into_the_page_as_markup_and_no_script_is_within_it() {
        let page = include_str!("../../../../dashboard/index.html");
        assert!(!page.contains("<script>") && !page.contains(" on") && !page.contains("style=\""));
        let ours = FILES.iter().filter(|(name, media, _)| *media == SCRIPT && !name.starts_with("uPlot"));
        for (name, _, content) in ours {
            for risky in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!content.contains(risky), "{name}: {risky}");
            }
        }
    }
}
