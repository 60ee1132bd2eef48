//! Where log lines go: standard error, as text or as JSON. What is logged can be changed while the program runs.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::cli::LogFormat;
use crate::error::StartError;

/// The filter of the log that was started.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Puts another filter into force.
    pub(crate) fn apply(&self, filter: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}

/// Installs the log. Once per process.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<LogFilter, StartError> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        StartError::option(
            "--log-level",
            level,
            format!("{error}; write error, warn, info, debug, trace or a filter"),
        )
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match format {
        LogFormat::Text => lines
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(LogFilter(handle))
}
