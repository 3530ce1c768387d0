//! Prints a waiting page, its content security policy, or its API answer: for the browser tests, and for
//! operators who write a template.
//!
//! `cargo run --example render_page -- lang=de wait=240 place=1234 target=/search [print=policy]`

use std::io::Write;
use std::time::Duration;

use tidegate_gateway::config::page::{Kind, Pages, View, keep};
use tidegate_settings::Room;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |name: &str| args.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
    let seconds = |name: &str, default: f64| -> Result<Duration, Box<dyn std::error::Error>> {
        let value = get(name).map_or(Ok(default), str::parse)?;
        Ok(Duration::try_from_secs_f64(value)?)
    };
    let room = Room {
        title: get("title").unwrap_or_default().into(),
        logo: get("logo").map(Into::into),
        template: get("template").map(Into::into),
        ..Room::default()
    };
    let pages = Pages::new(&room)?;
    let form = match get("form") {
        None => None,
        Some(body) => Some(
            keep("application/x-www-form-urlencoded", body.as_bytes(), room.max_form_bytes)
                .ok_or("expected form=... to be a urlencoded body that can be kept")?,
        ),
    };
    let kind = match get("kind") {
        None | Some("waiting") => Kind::Waiting,
        Some("full") => Kind::Full,
        Some("replaced") => Kind::Replaced,
        Some("late") => Kind::Late,
        Some("unavailable") => Kind::Unavailable,
        Some("forbidden") => Kind::Forbidden,
        Some(other) => return Err(format!("expected a kind of page, found {other}").into()),
    };
    let view = View {
        kind,
        lang: pages.language(get("lang")),
        status: room.status,
        wait: seconds("wait", 240.0)?,
        place: get("place").map_or(Ok(1_240), str::parse)?,
        waited: seconds("waited", 60.0)?,
        poll: seconds("poll", 1.0)?,
        target: get("target").unwrap_or("/"),
        ticket: get("ticket"),
        status_path: get("status").unwrap_or("/.tidegate/status"),
        check_url: get("check"),
        form: form.as_ref(),
        refresh: get("refresh").map(str::parse).transpose()?.map(Duration::from_secs_f64),
    };
    let mut out = Vec::new();
    match get("print") {
        None | Some("page") => pages.waiting(&view, &mut out),
        Some("policy") => out.extend_from_slice(pages.policy(form.is_some()).as_bytes()),
        Some("api") => pages.api(&view, &mut out),
        Some(other) => return Err(format!("expected print=page, policy or api, found {other}").into()),
    }
    std::io::stdout().write_all(&out)?;
    Ok(())
}
