//! `lunaport serve` and the quick start: everything is prepared and checked, then served until a signal.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use target_core::control::Parameters;
use target_core::iscsi::Node;
use tokio::runtime;
use tracing::{info, warn};

use crate::address::ISCSI_PORT;
use crate::cli::ServeArgs;
use crate::cores::Cores;
use crate::error::StartError;
use crate::export::Export;
use crate::plan::{self, Common, Plan};
use crate::shutdown::{self, StopSignals};
use crate::state::Database;
use crate::{address_rule, admin, banner, chap, interfaces, logging, notify, portals, quick_start};

/// What is served when no `--export` is given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Saved {
    /// The saved configuration, which must be there.
    Required,
    /// The saved configuration, made by the quick start when there is none.
    QuickStart,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: ServeArgs, saved: Saved) -> Result<ExitCode, StartError> {
    let args = args.with_lists_from_environment()?;
    logging::start(&args.log_level, args.log_format)?;
    let engine = backstores::probe(args.io_engine.into()).map_err(|source| StartError::System {
        what: "--io-engine uring: io_uring does not work here",
        source,
    })?;

    let exports = args
        .exports
        .iter()
        .map(|spec| Export::parse(spec))
        .collect::<Result<Vec<_>, _>>()?;
    let common = Common {
        portals: if args.portals.is_empty() {
            default_portals()
        } else {
            args.portals.clone()
        },
        chap: chap::policy(&args.chap, args.mutual_chap.as_deref())?,
        parameters: parameters(&args.set)?,
        advertised: args
            .address_rules
            .iter()
            .map(|rule| address_rule::parse(rule))
            .collect::<Result<Vec<_>, _>>()?,
    };
    // Ports first: they are what fails most often, and nothing needs to be undone.
    let listeners = listen(&common.portals)?;
    let admin = args.admin.map(admin::bind).transpose()?;
    let directory = state_directory(args.state_dir.clone());
    // Kept open to the end: the state directory is ours alone.
    let mut database = None;
    let plan = if exports.is_empty() {
        plan_saved(database.insert(open_saved(&directory, saved)?), &common, saved)?
    } else {
        plan::from_exports(
            &args.target_name,
            &exports,
            || {
                database
                    .insert(Database::open(&directory)?)
                    .installation_id(entropy)
            },
            &common,
        )?
    };

    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| StartError::System {
            what: "no runtime",
            source,
        })?;
    let cores = args.cores.map_or_else(processors, usize::from);
    info!("{}", banner::access_line(&plan, &common.portals));
    if !exports.is_empty() {
        info!("serving what --export names; none of it is saved");
    }
    info!(cores, "files and devices: {engine}");
    let node = Node::new(plan.directory.clone(), entropy, interfaces::addresses);
    let data = Cores::start(cores, args.io_engine.into(), POOL_BYTES, &node).map_err(|source| {
        StartError::System {
            what: "data cores cannot be started",
            source,
        }
    })?;
    // Before anybody is told that it runs: from then on a signal must mean a clean stop.
    let signals = {
        let _entered = runtime.enter();
        StopSignals::install()?
    };
    if saved == Saved::QuickStart {
        quick_start::greet(&plan, common.portals[0]);
    }
    runtime.block_on(serve(&plan, listeners, admin, data, node, signals))
}

/// Serves, drains, flushes.
async fn serve(
    plan: &Plan,
    listeners: Vec<TcpListener>,
    admin: Option<TcpListener>,
    cores: Cores,
    node: Arc<Node>,
    mut signals: StopSignals,
) -> Result<ExitCode, StartError> {
    for unit in &plan.units {
        info!("{}", banner::unit_line(unit));
    }
    let cores = Arc::new(cores);
    let connections_max = connections_max();
    {
        let accepting =
            portals::accept_all(listeners, Arc::clone(&cores), Arc::clone(&node), connections_max);
        let administering = async {
            match admin {
                Some(listener) => admin::serve(listener).await,
                None => std::future::pending().await,
            }
        };
        notify::ready();
        tokio::select! {
            signal = signals.next() => info!("{signal}: stopping"),
            result = accepting => {
                result.map_err(|source| StartError::System { what: "portals cannot be served", source })?;
            }
            result = administering => {
                result.map_err(|source| StartError::System { what: "--admin cannot be served", source })?;
            }
        }
    }
    let stop = async {
        shutdown::drain(&node).await;
        shutdown::flush(&plan.units).await
    };
    tokio::select! {
        flushed = stop => {
            info!("stopped");
            Ok(if flushed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        signal = signals.next() => {
            warn!("{signal} again: ending at once; what was not flushed yet is left to the operating system");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A start that has nothing to serve makes no state directory.
fn open_saved(directory: &Path, saved: Saved) -> Result<Database, StartError> {
    if saved == Saved::Required && !Database::is_there(directory) {
        return Err(nothing_saved(directory));
    }
    Database::open(directory)
}

fn nothing_saved(directory: &Path) -> StartError {
    let fix = "give --export SPEC, or run lunaport without a command for the quick start";
    StartError::state(directory, "nothing is saved there", fix)
}

fn plan_saved(database: &Database, common: &Common, saved: Saved) -> Result<Plan, StartError> {
    let config = match (database.config()?, saved) {
        (Some(config), _) => config,
        (None, Saved::QuickStart) => {
            let config = quick_start::first_config(database.installation_id(entropy)?);
            // Opened once before it is saved: a disk that cannot be made leaves no configuration that wants it.
            let plan = plan::from_saved(&config, database.directory(), common)?;
            database.save_config(&config)?;
            return Ok(plan);
        }
        (None, Saved::Required) => return Err(nothing_saved(database.directory())),
    };
    plan::from_saved(&config, database.directory(), common)
}

fn listen(portals: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    Ok(portals
        .iter()
        .map(|portal| tcp_transport::bind(*portal))
        .collect::<Result<Vec<_>, _>>()?)
}

fn parameters(settings: &[String]) -> Result<Parameters, StartError> {
    let mut parameters = Parameters::default();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| StartError::option("--set", setting, "not of the form KEY=VALUE"))?;
        parameters
            .set(key, value)
            .map_err(|error| StartError::option("--set", setting, error.problem))?;
    }
    Ok(parameters)
}

/// Loopback only; the IPv6 one where the host has it.
fn default_portals() -> Vec<SocketAddr> {
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let has_v6 = std::net::UdpSocket::bind(v6).is_ok();
    let mut portals = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, ISCSI_PORT))];
    if has_v6 {
        portals.push(SocketAddr::from((Ipv6Addr::LOCALHOST, ISCSI_PORT)));
    }
    portals
}

fn state_directory(given: Option<PathBuf>) -> PathBuf {
    given
        .or_else(|| {
            std::env::var_os("STATE_DIRECTORY")
                .filter(|directory| !directory.is_empty())
                .map(Into::into)
        })
        .unwrap_or_else(|| "lunaport-data".into())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Leaves descriptors for stores, listeners and the state.
fn connections_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    limit.saturating_sub(DESCRIPTORS_KEPT).clamp(1, CONNECTIONS_MAX)
}

/// Random bytes from the operating system.
fn entropy(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has randomness once it is up");
}

/// Buffers a data core may have in use; memory is touched only when it is used.
const POOL_BYTES: usize = 256 << 20;
const DESCRIPTORS_KEPT: usize = 128;
const CONNECTIONS_MAX: usize = 16_384;
