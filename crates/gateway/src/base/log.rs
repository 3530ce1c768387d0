//! Log lines on standard error: text for people, JSON for programs.
//!
//! The log must never stop the gateway: a line that cannot be written, because standard error is closed or
//! its disk is full, is dropped silently (the stock layer would report the failure on it).

use std::io::{self, IsTerminal as _, Write};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use tidegate_settings::{Log, LogFormat};

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("expected a level or a filter like \"info,tidegate=debug\"; got \"{got}\" ({why})")]
    Filter { got: String, why: String },
    #[error("logging is set up already")]
    AlreadySet,
    #[error("logging has ended")]
    Ended,
}

pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl LogHandle {
    /// Sets another level.
    ///
    /// # Errors
    /// [`LogError::Filter`]; the old level stays.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let new = filter(level)?;
        self.filter.reload(new).map_err(|_| LogError::Ended)
    }
}

/// Sets up the process's log; `level` (from the command line) overrides `log.level`.
pub fn init(log: &Log, level: Option<&str>) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(filter(level.unwrap_or(&log.level))?);
    let layer = layer(log.format, wants_colour(), || Quiet(io::stderr()));
    let set = tracing_subscriber::registry().with(filter).with(layer).try_init();
    set.map_err(|_| LogError::AlreadySet)?;
    Ok(LogHandle { filter: handle })
}

pub fn layer<S, W>(format: LogFormat, colour: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let plain = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    match format {
        LogFormat::Text => plain.with_ansi(colour).with_target(false).boxed(),
        LogFormat::Json => plain.json().flatten_event(true).with_ansi(false).boxed(),
    }
}

fn filter(text: &str) -> Result<EnvFilter, LogError> {
    let parsed = EnvFilter::builder().parse(text);
    parsed.map_err(|e| LogError::Filter { got: text.escape_debug().to_string(), why: e.to_string() })
}

/// Colours are for terminals, unless `NO_COLOR` is set (no-color.org).
fn wants_colour() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A writer that never fails: what cannot be written is dropped.
pub struct Quiet<W>(pub W);

impl<W: Write> Write for Quiet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        _ = self.0.flush();
        Ok(())
    }
}
