//! The program that is tested, bound to the test: the kernel ends it with the thread that started it, so that whoever kills
//! a test leaves none behind.

use std::ffi::OsStr;
use std::process::Command;

/// The one of this build, unless `LUNAPORT_BIN` names another by its whole path.
pub(crate) fn program() -> String {
    std::env::var("LUNAPORT_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_lunaport").to_owned())
}

/// A command that does not outlive the thread that spawns it. Setting that in the child would be unsafe code.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}
