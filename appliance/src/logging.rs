//! Where log lines go: standard error, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::error::StartError;

/// Installs the log. Once per process.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<(), StartError> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        StartError::option(
            "--log-level",
            level,
            format!("{error}; write error, warn, info, debug, trace or a filter"),
        )
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => log
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
