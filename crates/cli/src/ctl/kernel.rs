//! `tidegate ctl kernel`: rules for SYNs, and what became of them.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{self, Client};
use super::{Failure, Form, Why, show};
use crate::parse::syns_per_second;

#[derive(ClapArgs, Debug)]
pub struct KernelOptions {
    #[command(subcommand)]
    command: Option<KernelCommand>,
}

#[derive(Subcommand, Debug)]
enum KernelCommand {
    /// Make a rule for SYNs, or change what is given of one.
    Set(Box<SetOptions>),
    /// Remove a rule that was made by `set`.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(ClapArgs, Debug)]
struct SetOptions {
    /// Its name.
    name: String,
    /// The visitor's network or address; "*": any.
    #[arg(long, value_name = "NETWORK")]
    src: Option<String>,
    /// The visitor's port; 0: any.
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// The network or address asked for; "*": any.
    #[arg(long, value_name = "NETWORK")]
    dst: Option<String>,
    /// The port asked for; 0: any.
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// SYNs per second; 0: no limit.
    #[arg(long, value_name = "PER_S", value_parser = syns_per_second)]
    rate: Option<f64>,
    /// SYNs that may come in one instant; 0: one second's worth of the rate.
    #[arg(long, value_name = "SYNS")]
    burst: Option<u32>,
    /// 0: its connections are accepted first.
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// What becomes of SYNs beyond the rate: drop, reset or slow.
    #[arg(long, value_name = "WHAT")]
    excess: Option<String>,
    /// The agent leaves the rule whole as long as its visitors fit.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    preferred: Option<bool>,
    /// Least rate that the agent sets.
    #[arg(long, value_name = "PER_S", value_parser = syns_per_second)]
    min_rate: Option<f64>,
    #[command(flatten)]
    why: Why,
}

impl SetOptions {
    fn to_json(&self) -> Value {
        let all = [
            ("src", json!(self.src)),
            ("sport", json!(self.sport)),
            ("dst", json!(self.dst)),
            ("dport", json!(self.dport)),
            ("rate", json!(self.rate)),
            ("burst", json!(self.burst)),
            ("priority", json!(self.priority)),
            ("excess", json!(self.excess)),
            ("preferred", json!(self.preferred)),
            ("min_rate", json!(self.min_rate)),
            ("why", json!(self.why.why)),
        ];
        let given = all.into_iter().filter(|(_, value)| !value.is_null());
        Value::Object(given.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    }
}

pub async fn perform(client: &Client, options: &KernelOptions, form: Form) -> Result<(), Failure> {
    let path = |name: &str| format!("/v1/kernel/rules/{}", client::segment(name));
    let (answer, text): (Value, fn(&Value) -> String) = match &options.command {
        None => (client.ask("GET", "/v1/kernel", None).await?, show::kernel),
        Some(KernelCommand::Set(wanted)) => {
            let now = client.ask("GET", "/v1/kernel", None).await?;
            let mut rules = now["rules"].as_array().into_iter().flatten();
            // One that is there keeps what is not given.
            let is_there = rules.any(|rule| rule["name"].as_str() == Some(&wanted.name));
            let method = if is_there { "PATCH" } else { "PUT" };
            (client.ask(method, &path(&wanted.name), Some(&wanted.to_json())).await?, show::syn_rule)
        }
        Some(KernelCommand::Remove { name, why }) => {
            let gone = client.ask("DELETE", &path(name), Some(&json!({ "why": why.why }))).await?;
            (gone, |gone| format!("{} is removed", show::plain(&gone["name"])))
        }
    };
    form.print(&answer, text);
    Ok(())
}
