//! A command line that cannot be understood, told like every other start-up error: one line that names the culprit and
//! the fix.

use clap::error::ErrorKind;

use crate::error::StartError;

/// What is said and how the process ends when the command line asks for help, or cannot be understood.
pub(crate) fn explain(error: &clap::Error) -> StartError {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    StartError::Usage(one_line(&error.to_string()))
}

/// The parser's message without its own heading and without the usage that follows it.
fn one_line(message: &str) -> String {
    let parts: Vec<_> = message
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(|line| line.trim().trim_start_matches("error: "))
        .filter(|line| !line.is_empty())
        .map(|line| line.replacen("tip: ", "; ", 1))
        .collect();
    format!("{}; see --help", parts.join(" ").replace(" ; ", "; "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn said(arguments: &[&str]) -> String {
        one_line(&Cli::try_parse_from(arguments).unwrap_err().to_string())
    }

    #[test]
    fn the_culprit_and_the_nearest_right_word_are_on_the_one_line() {
        assert_eq!(
            said(&["lunaport", "serve", "--portl", "127.0.0.1:3260"]),
            "unexpected argument '--portl' found; a similar argument exists: '--portal'; see --help"
        );
        assert_eq!(
            said(&["lunaport", "serve", "--portal", "nonsense"]),
            "invalid value 'nonsense' for '--portal <ADDR:PORT[,group=N][,state=STATE]>': \"nonsense\" is no address of the form \
             ADDR:PORT or [ADDR6]:PORT; see --help"
        );
        assert_eq!(
            said(&["lunaport", "serve", "--log-format", "xml"]),
            "invalid value 'xml' for '--log-format <LOG_FORMAT>' [possible values: text, json]; see --help"
        );
        assert_eq!(
            said(&["lunaport", "completions"]),
            "the following required arguments were not provided: <SHELL>; see --help"
        );
    }
}
