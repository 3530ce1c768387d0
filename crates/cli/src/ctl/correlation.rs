//! `tidegate ctl correlation`, `confirm` and `adopt-cost`: which types of requests load which figure.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::client::{self, Client};
use super::{Failure, Form, Why, show};

#[derive(Subcommand, Debug)]
pub enum CorrelationCommand {
    /// Show which types of requests load a figure.
    Correlation {
        /// The figure; by default that of the reddest detector.
        #[arg(long, value_name = "NAME")]
        figure: Option<String>,
    },
    /// Hold a suspect for some seconds, to see whether the figure falls.
    Confirm(ConfirmOptions),
    /// Set a class's cost to what was measured.
    AdoptCost(AdoptOptions),
}

#[derive(ClapArgs, Debug)]
pub struct ConfirmOptions {
    /// The suspect: `class:NAME`, or `path:` and a template, as `correlation` shows it.
    #[arg(value_name = "TYPE", required_unless_present = "end", conflicts_with = "end")]
    of: Option<String>,
    /// The share of its requests that it keeps while it is held.
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    keep: f64,
    /// How long each phase is.
    #[arg(long = "for", default_value = "10s", value_name = "TIME")]
    lasts: String,
    /// The figure that should fall; by default that of the reddest detector.
    #[arg(long, value_name = "NAME")]
    figure: Option<String>,
    /// End the confirmation under way.
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    why: Why,
}

#[derive(ClapArgs, Debug)]
pub struct AdoptOptions {
    /// The class.
    class: String,
    /// The figure by which the cost was measured; by default that of the reddest detector.
    #[arg(long, value_name = "NAME")]
    figure: Option<String>,
    #[command(flatten)]
    why: Why,
}

pub async fn perform(client: &Client, command: &CorrelationCommand, form: Form) -> Result<(), Failure> {
    let (answer, text): (Value, fn(&Value) -> String) = match command {
        CorrelationCommand::Correlation { figure } => {
            (found(client, figure.as_deref()).await?, show::correlation)
        }
        CorrelationCommand::Confirm(wanted) => (confirm(client, wanted).await?, show::confirmation),
        CorrelationCommand::AdoptCost(wanted) => (adopt_cost(client, wanted).await?, show::changes),
    };
    form.print(&answer, text);
    Ok(())
}

async fn found(client: &Client, figure: Option<&str>) -> Result<Value, Failure> {
    let query = figure.map_or_else(String::new, |name| format!("?figure={}", client::segment(name)));
    client.ask("GET", &format!("/v1/correlation{query}"), None).await
}

async fn confirm(client: &Client, wanted: &ConfirmOptions) -> Result<Value, Failure> {
    const PATH: &str = "/v1/correlation/confirmation";
    let ConfirmOptions { of, keep, lasts, figure, end, why } = wanted;
    if *end {
        return client.ask("DELETE", PATH, Some(&json!({ "why": why.why }))).await;
    }
    let mut body = json!({ "type": of, "keep": keep, "for": lasts, "why": why.why });
    if let Some(figure) = figure {
        body["figure"] = figure.as_str().into();
    }
    client.ask("POST", PATH, Some(&body)).await
}

/// Sets a class's cost to what was measured.
async fn adopt_cost(client: &Client, wanted: &AdoptOptions) -> Result<Value, Failure> {
    let AdoptOptions { class, figure, why } = wanted;
    let found = found(client, figure.as_deref()).await?;
    let by = show::plain(&found["figure"]);
    let costs: Vec<&Value> = found["costs"].as_array().into_iter().flatten().collect();
    let Some(cost) = costs.iter().find(|cost| cost["class"].as_str() == Some(class.as_str())) else {
        let names: Vec<_> = costs.iter().filter_map(|cost| cost["class"].as_str()).collect();
        let known = if names.is_empty() { "there is none".into() } else { names.join(", ") };
        let text =
            format!("expected a class whose requests are counted as a type ({known}); got \"{class}\"");
        return Err(Failure::Refused(text));
    };
    let Some(measured) = cost["measured"].as_f64() else {
        let text = format!("the cost of {class} is not known by {by}: not enough data, or not to be told");
        return Err(Failure::Refused(format!("{text} from other types")));
    };
    // More digits would pretend to know.
    let value = (measured * 100.0).round() / 100.0;
    let reason =
        format!("measured by {by}: {value} ({:.2} to {:.2})", number(&cost["low"]), number(&cost["high"]));
    let why = if why.why.is_empty() { reason } else { format!("{}; {reason}", why.why) };
    let changes = json!({ format!("class.{class}.cost"): value });
    let body = json!({ "changes": changes, "why": why });
    client.ask("PATCH", "/v1/tunables", Some(&body)).await
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}
