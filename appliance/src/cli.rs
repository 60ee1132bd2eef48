//! The command line. Every option is also an environment variable `LUNAPORT_…`; those that may be given several times
//! take a list there, separated by `;`.

use std::net::SocketAddr;
use std::path::PathBuf;

use backstores::EngineChoice;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::address::{environment_list, portals_from_environment};
use crate::client;
use crate::error::StartError;
use crate::portal::PortalSpec;

/// Serves file, block and in-memory disks over iSCSI.
#[derive(Debug, Parser)]
#[command(name = "lunaport", version, after_help = QUICK_START)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve disks: those given with --export, or the saved configuration.
    Serve(Box<ServeArgs>),
    /// Ask a portal for its targets (a discovery login); exit 0 when it answers.
    Health(HealthArgs),
    /// The whole configuration: show, compare, apply.
    Config {
        #[command(subcommand)]
        command: client::ConfigCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// Who may log in, and who could not.
    Initiator {
        #[command(subcommand)]
        command: client::InitiatorCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// Long work: list, wait, cancel.
    Job {
        #[command(subcommand)]
        command: client::JobCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// What is logged: show it, or change it until the program ends.
    LogFilter {
        /// error, warn, info, debug, trace, or a filter such as info,target_core=debug
        filter: Option<String>,
        #[command(flatten)]
        common: client::Common,
    },
    /// LUNs of targets.
    Lun {
        #[command(subcommand)]
        command: client::LunCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// What initiators reserved: list, show, clear.
    Reservation {
        #[command(subcommand)]
        command: client::ReservationCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// Sessions: list, close.
    Session {
        #[command(subcommand)]
        command: client::SessionCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// Backing stores: files, devices, memory.
    Store {
        #[command(subcommand)]
        command: client::StoreCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// Targets.
    Target {
        #[command(subcommand)]
        command: client::TargetCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// What goes on now, by LUN and initiator.
    Top {
        #[command(flatten)]
        args: client::TopArgs,
        #[command(flatten)]
        common: client::Common,
    },
    /// Who may manage; a lost password is replaced here.
    User {
        #[command(subcommand)]
        command: client::UserCommand,
        #[command(flatten)]
        common: client::Common,
    },
    /// How the program is.
    Status {
        #[command(flatten)]
        common: client::Common,
    },
    /// Print a completion script for a shell.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Directory for saved state [default: $STATE_DIRECTORY, else ./lunaport-data]
    #[arg(long, value_name = "DIR", env = "LUNAPORT_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Listen here (several times) [default: 127.0.0.1:3260 and, with IPv6, [::1]:3260]; iser:ADDR:PORT beside those is a
    /// portal over RDMA. Portals with the same group=N are
    /// one path for multipath software (ALUA), whose first state is optimized, non-optimized, standby or unavailable
    /// [env: LUNAPORT_PORTAL]
    #[arg(long = "portal", value_name = "ADDR:PORT[,group=N][,state=STATE]")]
    pub(crate) portals: Vec<PortalSpec>,

    /// Serve the management API here; over TLS unless the address is a loopback one
    #[arg(long, value_name = "ADDR:PORT", env = "LUNAPORT_ADMIN")]
    pub(crate) admin: Option<SocketAddr>,

    /// Certificate chain for --admin, PEM [default: one that is made once, signed by itself]
    #[arg(long, value_name = "FILE", env = "LUNAPORT_TLS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, PEM
    #[arg(long, value_name = "FILE", env = "LUNAPORT_TLS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve --admin over plain HTTP beyond loopback too: whoever listens in can then read passwords
    #[arg(long, env = "LUNAPORT_ADMIN_PLAIN")]
    pub(crate) admin_plain: bool,

    /// Token that makes the first user, in a file [default: one that is printed] [env: LUNAPORT_SET_UP_TOKEN, the token
    /// itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) set_up_token_file: Option<PathBuf>,

    /// Name of the target that holds the exports
    #[arg(long, value_name = "IQN", env = "LUNAPORT_TARGET_NAME", default_value = DEFAULT_TARGET)]
    pub(crate) target_name: String,

    /// Serve this disk, in memory only, open to every initiator that reaches a portal (several times; each is the next
    /// LUN). SPEC is KIND:WHAT and options after commas: memory:SIZE | file:PATH | block:/dev/X | null:SIZE, then
    /// size=10G (creates a sparse file), ro, block-size=512|4096, physical-block-size=N,
    /// cache=writeback|writethrough, direct, serial=TEXT, vendor=TEXT, product=TEXT, revision=TEXT, thin=off,
    /// soft-threshold=80% or a size (warns initiators), removable, lun=N [env: LUNAPORT_EXPORT]
    #[arg(long = "export", value_name = "SPEC")]
    pub(crate) exports: Vec<String>,

    /// Let in only initiators that prove this name and secret by CHAP (several times: any of them). The file holds the
    /// secret; one newline at its end does not belong to it [env: LUNAPORT_CHAP]
    #[arg(long = "chap", value_name = "NAME:SECRETFILE")]
    pub(crate) chap: Vec<String>,

    /// Prove this name and secret to initiators that ask for it (mutual CHAP); needs --chap
    #[arg(long, value_name = "NAME:SECRETFILE", env = "LUNAPORT_MUTUAL_CHAP")]
    pub(crate) mutual_chap: Option<String>,

    /// Set a limit of negotiation, a time-out or a switch, for example InitialR2T=No, HeaderDigest=CRC32C,None or
    /// login-timeout=30 (several times) [env: LUNAPORT_SET]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Tell initiators from this network this address in discovery, instead of the portals' own: their way in through
    /// address translation or a load balancer (several times; the narrowest network decides)
    /// [env: LUNAPORT_ADDRESS_RULE]
    #[arg(long = "address-rule", value_name = "CIDR=ADDR:PORT[,group=N]")]
    pub(crate) address_rules: Vec<String>,

    /// Data cores, one thread each [default: one per processor]
    #[arg(long, value_name = "N", env = "LUNAPORT_CORES", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cores: Option<u16>,

    /// Memory for data of each data core; portals over RDMA lock all of it, and a quarter more for messages
    #[arg(long, value_name = "SIZE", env = "LUNAPORT_BUFFERS", default_value = "256M")]
    pub(crate) buffers: String,

    /// How files and devices are read and written
    #[arg(long, value_enum, env = "LUNAPORT_IO_ENGINE", default_value = "auto")]
    pub(crate) io_engine: IoEngine,

    /// What is logged: error, warn, info, debug, trace, or a filter such as info,target_core=debug
    #[arg(long, value_name = "L", env = "LUNAPORT_LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,

    /// How it is logged
    #[arg(long, value_enum, env = "LUNAPORT_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// Portal to ask; an unspecified address means this host
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) portal: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum IoEngine {
    /// io_uring where the kernel and the container allow it, else the pool
    Auto,
    /// io_uring or no start
    Uring,
    /// Cached reads in place, the rest on a few blocking threads
    Pool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

impl ServeArgs {
    /// Options as they are when none is given, for the quick start: environment variables count all the same.
    pub(crate) fn from_environment() -> Result<Self, clap::Error> {
        let cli = Cli::try_parse_from(["lunaport", "serve"])?;
        let Some(Command::Serve(args)) = cli.command else {
            unreachable!("parsed as serve")
        };
        Ok(*args)
    }

    /// Fills the options that may be given several times from the environment where the command line has none.
    pub(crate) fn with_lists_from_environment(mut self) -> Result<Self, StartError> {
        for (list, variable) in [
            (&mut self.exports, "LUNAPORT_EXPORT"),
            (&mut self.chap, "LUNAPORT_CHAP"),
            (&mut self.set, "LUNAPORT_SET"),
            (&mut self.address_rules, "LUNAPORT_ADDRESS_RULE"),
        ] {
            if list.is_empty() {
                *list = environment_list(variable);
            }
        }
        if self.portals.is_empty() {
            self.portals = portals_from_environment()?;
        }
        Ok(self)
    }
}

impl From<IoEngine> for EngineChoice {
    fn from(engine: IoEngine) -> Self {
        match engine {
            IoEngine::Auto => Self::Auto,
            IoEngine::Uring => Self::Uring,
            IoEngine::Pool => Self::Pool,
        }
    }
}

/// The target of the quick start and of exports that name none.
pub(crate) const DEFAULT_TARGET: &str = "iqn.2026-11.org.lunaport:disks";

const QUICK_START: &str = "Without a command: the quick start. A 1 GiB disk in ./lunaport-data, served on loopback only, \
     and the commands to use it from Linux, QEMU and libiscsi.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
