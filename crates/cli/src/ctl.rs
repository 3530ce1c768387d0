//! `tidegate ctl`: shows the state of a running gate and changes its tunables, over the admin API.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Map, Value, json};
use tidegate_settings::did_you_mean;

mod client;
mod correlation;
mod kernel;
mod show;
mod watch;

use client::Client;

use crate::parse::{assignment, bandwidth, per_second, share};
use crate::results::fail;

const CAPACITY: &str = "/v1/capacity";

/// The default of `listen.admin`.
const DEFAULT_URL: &str = "http://127.0.0.1:9090";

/// `tidegate ctl`
///
/// Exit status: 0 done; 1 the gate refused and gives the reason; 2 the command line is wrong; 3 no gate
/// answers.
#[derive(ClapArgs, Debug)]
pub struct CtlOptions {
    /// The gate's admin API [default: $TIDEGATE_URL, or http://127.0.0.1:9090].
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// `listen.admin_token`, or `listen.admin_read_token` to read only [default: $TIDEGATE_TOKEN].
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Authorities that are believed beside those of the system, with an https:// URL: a file in PEM
    /// [default: $TIDEGATE_CA].
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<String>,
    /// Print the gate's answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(ClapArgs, Debug)]
struct Why {
    /// The reason, for the audit.
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

#[derive(ClapArgs, Debug)]
struct GetOptions {
    /// Names or patterns, e.g. `queue.max_wait`, `class.*.priority`.
    names: Vec<String>,
    /// Only those whose value differs from the file's.
    #[arg(long)]
    tuned: bool,
}

#[derive(ClapArgs, Debug)]
struct ThrottleOptions {
    /// `class:NAME`, or `path:` and a template or a path, like `path:/item/{n}`.
    #[arg(value_name = "TYPE")]
    of: String,
    #[command(flatten)]
    action: ThrottleAction,
    /// How long, like 10m; without it until `unthrottle`.
    #[arg(long = "for", value_name = "TIME")]
    lasts: Option<String>,
    #[command(flatten)]
    why: Why,
}

#[derive(ClapArgs, Debug)]
#[group(required = true, multiple = false)]
struct ThrottleAction {
    /// Refuse this share of them, from 0 to 1.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    refuse: Option<f64>,
    /// Let so many per second pass.
    #[arg(long, value_name = "PER_S", value_parser = per_second)]
    rate: Option<f64>,
    /// Bytes per second that the bodies of all their answers get together, like 125kB.
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    bandwidth: Option<u64>,
}

impl ThrottleAction {
    fn to_json(&self) -> Value {
        match (self.refuse, self.rate, self.bandwidth) {
            (Some(share), ..) => json!({ "refuse": share }),
            (_, Some(rate), _) => json!({ "rate": rate }),
            (.., bytes) => json!({ "bandwidth": bytes }),
        }
    }
}

#[derive(Subcommand, Debug)]
enum CtlCommand {
    /// Show tunables: all, one with its meaning, or those that match a pattern (`*`).
    Get(GetOptions),
    /// Change tunables, all of those given or none.
    Set {
        /// E.g. `queue.max_wait=10s`, `class.search.priority=3`.
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = assignment)]
        changes: Vec<(String, String)>,
        #[command(flatten)]
        why: Why,
    },
    /// Set tunables back to the values of the file.
    Reset {
        /// Names of tunables.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        why: Why,
    },
    /// Print figures of the gate once a second.
    Watch(watch::WatchOptions),
    /// Show who changed what, the latest change first.
    Audit {
        /// Number of changes to list.
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
        #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Explain why a request was refused.
    Explain {
        /// The request's id: `X-Request-Id`, or `id` in `Tidegate-Decision`.
        id: String,
    },
    /// Show the admitted sessions, and how many more there may be.
    Sessions {
        /// Number of sessions to list.
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
        #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Continue where the last page ended.
        #[arg(long, value_name = "NEXT")]
        after: Option<u64>,
    },
    /// End one session, or all. Their slots are free at once.
    EndSession {
        /// Its key, as `sessions` shows it.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        key: Option<String>,
        /// Every session.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        why: Why,
    },
    /// Throttle a type of requests: refuse a share of them, or limit their rate or bandwidth. A throttle of
    /// the same type is replaced.
    Throttle(ThrottleOptions),
    /// Show the throttles in force.
    Throttles,
    /// End a throttle.
    Unthrottle {
        /// Its number, or its type as `throttles` shows it.
        #[arg(value_name = "ID|TYPE")]
        which: String,
        #[command(flatten)]
        why: Why,
    },
    #[command(flatten)]
    Correlation(correlation::CorrelationCommand),
    /// Show what the kernel does with connections before they are accepted, or change its rules.
    Kernel(kernel::KernelOptions),
    /// Show all figures.
    State,
    /// Show the capacity and how it was discovered, or set it.
    Capacity {
        /// The capacity from now on, in cost units per second.
        rate: Option<f64>,
        #[command(flatten)]
        why: Why,
    },
    /// Discover the capacity anew.
    Rediscover(Why),
    /// Read the configuration again.
    Reload(Why),
    /// Let requests under way finish, then stop the gate.
    Drain(Why),
}

/// `tidegate explain`: as `tidegate ctl explain`.
#[derive(ClapArgs, Debug)]
pub struct ExplainOptions {
    /// The request's id: `X-Request-Id`, or `id` in `Tidegate-Decision`.
    id: String,
    /// The gate's admin API [default: $TIDEGATE_URL, or http://127.0.0.1:9090].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// `listen.admin_token`, or `listen.admin_read_token` [default: $TIDEGATE_TOKEN].
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Authorities that are believed beside those of the system, with an https:// URL: a file in PEM
    /// [default: $TIDEGATE_CA].
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Print the gate's answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn explain(options: ExplainOptions) -> ExitCode {
    let ExplainOptions { id, url, token, ca, json } = options;
    ctl(&CtlOptions { url, token, ca, json, command: CtlCommand::Explain { id } })
}

#[derive(Debug)]
enum Failure {
    Refused(String),
    Usage(String),
    /// Nobody answers, or the answer is not a gate's.
    Unreachable(String),
}

pub fn ctl(options: &CtlOptions) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(e),
    };
    let (why, code) = match runtime.block_on(perform(options)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Refused(why)) => (why, 1),
        Err(Failure::Usage(why)) => (why, 2),
        Err(Failure::Unreachable(why)) => (why, 3),
    };
    fail(why);
    ExitCode::from(code)
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Text,
    Json,
}

impl Form {
    fn print(self, answer: &Value, text: impl FnOnce(&Value) -> String) {
        let shown = if self == Self::Json { format!("{answer:#}") } else { text(answer) };
        if !shown.is_empty() {
            show::say(shown.trim_end());
        }
    }
}

/// The value of an option, or of the environment variable for it.
fn given(option: &Option<String>, variable: &str) -> Option<String> {
    option.clone().or_else(|| std::env::var(variable).ok()).filter(|text| !text.is_empty())
}

async fn perform(options: &CtlOptions) -> Result<(), Failure> {
    let url = given(&options.url, "TIDEGATE_URL").unwrap_or_else(|| DEFAULT_URL.into());
    let ca = given(&options.ca, "TIDEGATE_CA").map(PathBuf::from);
    let client = Client::new(&url, given(&options.token, "TIDEGATE_TOKEN"), ca.as_deref())?;
    let form = if options.json { Form::Json } else { Form::Text };
    let (answer, text): (Value, fn(&Value) -> String) = match &options.command {
        CtlCommand::Watch(wanted) => return watch::watch(&client, wanted, form).await,
        CtlCommand::Get(wanted) => return get(&client, wanted, form).await,
        CtlCommand::Kernel(wanted) => return kernel::perform(&client, wanted, form).await,
        CtlCommand::Correlation(command) => return correlation::perform(&client, command, form).await,
        CtlCommand::Set { changes, why } => {
            let changes: Map<_, _> = changes.iter().map(|(name, text)| (name.clone(), value(text))).collect();
            let body = json!({ "changes": changes, "why": why.why });
            (client.ask("PATCH", "/v1/tunables", Some(&body)).await?, show::changes)
        }
        CtlCommand::Reset { names, why } => {
            let mut last = Value::Null;
            for name in names {
                let path = format!("/v1/tunables/{}", client::segment(name));
                last = client.ask("DELETE", &path, Some(&json!({ "why": why.why }))).await?;
                if form == Form::Text {
                    show::say(&show::now(&last));
                }
            }
            (last, |_| String::new())
        }
        CtlCommand::Audit { limit } => {
            (client.ask("GET", &format!("/v1/audit?limit={limit}"), None).await?, show::audit)
        }
        CtlCommand::Explain { id } => {
            let path = format!("/v1/explain/{}", client::segment(id));
            (client.ask("GET", &path, None).await?, show::refusal)
        }
        CtlCommand::Sessions { limit, after } => {
            let after = after.map_or_else(String::new, |after| format!("&after={after}"));
            let path = format!("/v1/sessions?limit={limit}{after}");
            (client.ask("GET", &path, None).await?, show::sessions)
        }
        CtlCommand::EndSession { key, why, .. } => {
            let one = key.as_deref().map_or_else(String::new, |key| format!("/{}", client::segment(key)));
            let path = format!("/v1/sessions{one}");
            (client.ask("DELETE", &path, Some(&json!({ "why": why.why }))).await?, |answer| {
                format!("{} ended", show::plain(&answer["ended"]))
            })
        }
        CtlCommand::Throttle(ThrottleOptions { of, action, lasts, why }) => {
            let body = json!({ "type": of, "action": action.to_json(), "for": lasts, "why": why.why });
            (client.ask("POST", "/v1/throttles", Some(&body)).await?, show::throttle)
        }
        CtlCommand::Throttles => (client.ask("GET", "/v1/throttles", None).await?, show::throttles),
        CtlCommand::Unthrottle { which, why } => (unthrottle(&client, which, why).await?, |gone| {
            format!("{} is not throttled any more", show::plain(&gone["type"]))
        }),
        CtlCommand::State => (client.ask("GET", "/v1/state", None).await?, show::figures),
        CtlCommand::Capacity { rate: None, .. } => (client.ask("GET", CAPACITY, None).await?, show::figures),
        CtlCommand::Capacity { rate: Some(rate), why } => {
            let body = json!({ "rate": rate, "why": why.why });
            (client.ask("PUT", CAPACITY, Some(&body)).await?, |now| {
                format!("capacity {}", show::plain(&now["rate"]))
            })
        }
        CtlCommand::Rediscover(why) => (act(&client, "/v1/capacity/rediscover", why).await?, |_| {
            "the capacity is being discovered anew".into()
        }),
        CtlCommand::Reload(why) => (act(&client, "/v1/reload", why).await?, show::reloaded),
        CtlCommand::Drain(why) => (act(&client, "/v1/drain", why).await?, |_| "draining".into()),
    };
    form.print(&answer, text);
    Ok(())
}

async fn act(client: &Client, path: &str, why: &Why) -> Result<Value, Failure> {
    client.ask("POST", path, Some(&json!({ "why": why.why }))).await
}

/// Ends the throttle of this number or type.
async fn unthrottle(client: &Client, which: &str, why: &Why) -> Result<Value, Failure> {
    let mut id = which.to_owned();
    if which.parse::<u32>().is_err() {
        let all = client.ask("GET", "/v1/throttles", None).await?;
        let all: Vec<&Value> = all["throttles"].as_array().into_iter().flatten().collect();
        let named = |one: &&&Value| one["type"].as_str() == Some(which);
        let Some(found) = all.iter().find(named) else {
            let names = all.iter().filter_map(|one| one["type"].as_str());
            let hint = did_you_mean(which, names).unwrap_or_else(|| match all.is_empty() {
                true => "Nothing is throttled.".into(),
                false => "`tidegate ctl throttles` lists them.".into(),
            });
            return Err(Failure::Refused(format!("there is no throttle of \"{which}\". {hint}")));
        };
        id = show::plain(&found["id"]);
    }
    let path = format!("/v1/throttles/{}", client::segment(&id));
    client.ask("DELETE", &path, Some(&json!({ "why": why.why }))).await
}

/// A value of JSON if the text is one, else the text: `10s`, `codel`.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Null | Value::Object(_)) | Err(_) => Value::String(text.into()),
        Ok(value) => value,
    }
}

async fn get(client: &Client, wanted: &GetOptions, form: Form) -> Result<(), Failure> {
    let GetOptions { names, tuned } = wanted;
    if let ([name], false) = (names.as_slice(), *tuned)
        && !name.contains('*')
    {
        let one = client.ask("GET", &format!("/v1/tunables/{}", client::segment(name)), None).await?;
        form.print(&one, show::one);
        return Ok(());
    }
    let mut answer = client.ask("GET", "/v1/tunables", None).await?;
    let Some(all) = answer["tunables"].as_array_mut() else {
        return Err(Failure::Unreachable("the answer is not a gate's".into()));
    };
    for name in names {
        if !all.iter().any(|tunable| fits(name, tunable["name"].as_str().unwrap_or_default())) {
            return Err(Failure::Refused(format!(
                "expected the name of a tunable or a pattern; got \"{name}\", which matches none (`tidegate ctl get` lists \
                 them)"
            )));
        }
    }
    all.retain(|tunable| {
        let name = tunable["name"].as_str().unwrap_or_default();
        let wanted = names.is_empty() || names.iter().any(|pattern| fits(pattern, name));
        wanted && !(*tuned && tunable["tuned"].is_null())
    });
    form.print(&answer, show::tunables);
    Ok(())
}

/// Whether a name matches a pattern, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, wanted) in [
            ("queue.max_wait", "queue.max_wait", true),
            ("queue.max_wait", "queue.max_waits", false),
            ("queue.*", "queue.max_wait", true),
            ("*wait", "queue.max_wait", true),
            ("class.*.priority", "class.search.priority", true),
            ("class.*.priority", "class.search.cost", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn a_value_is_json_or_text() {
        for (text, wanted) in [
            ("10", json!(10)),
            ("0.5", json!(0.5)),
            ("true", json!(true)),
            ("10s", json!("10s")),
            ("\"10\"", json!("10")),
            ("[\"search\"]", json!(["search"])),
            ("null", json!("null")),
            ("", json!("")),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }
}
