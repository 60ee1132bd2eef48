//! `lunaport serve` and the quick start: everything is prepared and checked, then served until a signal.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use management::control::Control;
use management::live::{ReservationStore, SanitizeStore};
use management::state::{ReservationFiles, SanitizeMarks, State, UnitMemory};
use target_core::control::{Directory, Parameters};
use target_core::iscsi::Node;
use target_core::scsi::NonVolatileMemory;
use tokio::runtime;
use tokio::signal::unix::Signal;
use tracing::{info, warn};

use crate::address::ISCSI_PORT;
use crate::admin::Admin;
use crate::cli::ServeArgs;
use crate::cores::Cores;
use crate::descriptors::Descriptors;
use crate::error::StartError;
use crate::export::Export;
use crate::iser::IserPortals;
use crate::managed::{self, Opened};
use crate::plan::{self, Common, Plan, PlannedUnit};
use crate::portal::PortalSpec;
use crate::portals::Acceptor;
use crate::shutdown::{self, StopSignals};
use crate::size::parse_size;
use crate::{address_rule, banner, chap, interfaces, logging, notify, quick_start, watch};

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
    let log = logging::start(&args.log_level, args.log_format)?;
    let engine = backstores::probe(args.io_engine.into()).map_err(|source| StartError::System {
        what: "--io-engine uring: io_uring does not work here",
        source,
    })?;

    let exports = args
        .exports
        .iter()
        .map(|spec| Export::parse(spec))
        .collect::<Result<Vec<_>, _>>()?;
    let mut portals = args.portals.clone();
    if portals.iter().all(|portal| portal.over_rdma) {
        portals.splice(0..0, default_portals().into_iter().map(PortalSpec::from));
    }
    let buffers = buffers(&args.buffers)?;
    let mut common = Common {
        portals,
        management_url: management_url(&args),
        chap: chap::policy(&args.chap, args.mutual_chap.as_deref())?,
        parameters: parameters(&args.set)?,
        advertised: args
            .address_rules
            .iter()
            .map(|rule| address_rule::parse(rule))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let admin = Admin::prepare(&args)?;
    let directory = state_directory(args.state_dir.clone());
    let source = if exports.is_empty() {
        // A port that is taken is told before a state directory is made.
        let early = (!State::is_there(&directory))
            .then(|| listen(&common.portals))
            .transpose()?;
        let opened = Opened::open(&directory, saved, admin.is_there())?;
        if args.portals.is_empty() && opened.has_portals() {
            common.portals.clear();
        }
        let listeners = early.map_or_else(|| listen(&common.portals), Ok)?;
        Source::Saved(opened, listeners)
    } else {
        let listeners = listen(&common.portals)?;
        let mut state = None;
        let installation = || {
            let memory: Arc<dyn NonVolatileMemory> = Arc::new(UnitMemory::new(&directory));
            let opened = state.insert(State::open(&directory, entropy)?.0);
            Ok((opened.installation(), memory))
        };
        let plan = plan::from_exports(&args.target_name, &exports, installation, &common)?;
        ReservationStore::start(ReservationFiles::new(&directory))?.adopt_all(&plan.directory)?;
        Source::Exports(plan, listeners, state)
    };

    // Small: it accepts and administers, and never touches data.
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| StartError::System {
            what: "no runtime",
            source,
        })?;
    let cores = args.cores.map_or_else(processors, usize::from);
    let node = Node::new(source.directory(), entropy, interfaces::addresses);
    let data =
        Cores::start(cores, args.io_engine.into(), buffers, &node).map_err(|source| StartError::System {
            what: "data cores cannot be started",
            source,
        })?;
    let data = Arc::new(data);
    let _entered = runtime.enter();
    // Before anybody is told that it runs: from then on a signal must mean a clean stop.
    let (signals, hangup) = (StopSignals::install()?, StopSignals::hangup()?);
    let descriptors = Descriptors::of_process(&node);
    let acceptor = Acceptor::new(Arc::clone(&data), descriptors.clone());
    let iser = IserPortals::new(Arc::clone(&data), descriptors);
    // Held to the end: the state directory is ours alone.
    let mut _state = None;
    let (listeners, served) = match source {
        Source::Exports(plan, listeners, state) => {
            _state = state;
            // What was interrupted goes on in this runtime.
            SanitizeStore::start(SanitizeMarks::new(&directory))?.adopt_all(&plan.directory)?;
            (listeners, Served::Exports(plan.units))
        }
        Source::Saved(opened, listeners) => {
            let control = opened.start(Arc::clone(&node), &common, Arc::clone(&acceptor), &iser)?;
            let apply = move |filter: &str| log.apply(filter);
            control.log_filter().attach(args.log_level, apply);
            if saved == Saved::QuickStart {
                runtime.block_on(quick_start::configure(&control))?;
            }
            (listeners, Served::Saved(control))
        }
    };
    served.announce(&node, saved);
    info!(cores, "files and devices: {engine}");
    for listener in listeners {
        acceptor.accept(listener);
    }
    for portal in common.portals.iter().filter(|portal| portal.over_rdma) {
        iser.listen(portal.address);
    }
    runtime.block_on(serve(
        &served,
        (&acceptor, &iser),
        (admin, data),
        &node,
        (signals, hangup),
    ))
}

/// Where what is served comes from.
enum Source {
    /// `--export`, and the state directory where it was asked who this installation is.
    Exports(Plan, Vec<TcpListener>, Option<State>),
    /// The state directory.
    Saved(Opened, Vec<TcpListener>),
}

/// What is served.
enum Served {
    Exports(Vec<PlannedUnit>),
    Saved(Arc<Control>),
}

impl Source {
    fn directory(&self) -> Directory {
        match self {
            Self::Exports(plan, ..) => plan.directory.clone(),
            Self::Saved(..) => Directory::default(),
        }
    }
}

impl Served {
    /// The first lines.
    fn announce(&self, node: &Node, saved: Saved) {
        let directory = node.directory();
        info!("{}", banner::access_line(&directory));
        let from_state;
        let units = match self {
            Self::Exports(units) => {
                info!("serving what --export names; none of it is saved");
                units
            }
            Self::Saved(control) => {
                from_state = managed::units(control);
                &from_state
            }
        };
        for unit in units.iter().take(UNITS_NAMED) {
            info!("{}", banner::unit_line(unit));
        }
        if units.len() > UNITS_NAMED {
            info!("and {} more disks", units.len() - UNITS_NAMED);
        }
        if let (Saved::QuickStart, Some(portal)) = (saved, directory.portals.first()) {
            quick_start::greet(units, portal.address);
        }
    }

    async fn administer(&self, admin: Admin, node: &Arc<Node>, data: Arc<Cores>) -> Result<(), StartError> {
        let cores = management::exposition::Cores::new(move || data.view());
        match self {
            Self::Exports(_) => admin.serve_health(Arc::clone(node), cores).await,
            Self::Saved(control) => admin.serve(control, cores).await,
        }
    }

    async fn watch(&self, hangup: Signal) {
        match self {
            Self::Exports(units) => watch::watch(units, hangup).await,
            Self::Saved(control) => watch::watch_managed(control, hangup).await,
        }
    }

    async fn flush(&self) -> bool {
        match self {
            Self::Exports(units) => shutdown::flush(units).await,
            Self::Saved(control) => shutdown::flush(&managed::units(control)).await,
        }
    }
}

/// Serves, drains, flushes.
async fn serve(
    served: &Served,
    (acceptor, iser): (&Acceptor, &IserPortals),
    (admin, data): (Admin, Arc<Cores>),
    node: &Arc<Node>,
    (mut signals, hangup): (StopSignals, Signal),
) -> Result<ExitCode, StartError> {
    notify::ready();
    tokio::select! {
        signal = signals.next() => info!("{signal}: stopping"),
        () = served.watch(hangup) => unreachable!("it watches until it is dropped"),
        result = served.administer(admin, node, data) => result?,
    }
    acceptor.stop();
    iser.stop();
    let stop = async {
        shutdown::drain(node).await;
        served.flush().await
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

fn listen(portals: &[PortalSpec]) -> Result<Vec<TcpListener>, StartError> {
    Ok(portals
        .iter()
        .filter(|portal| !portal.over_rdma)
        .map(|portal| tcp_transport::bind(portal.address))
        .collect::<Result<Vec<_>, _>>()?)
}

/// Bytes of buffers that a data core may have in use; memory is touched only when it is used.
fn buffers(size: &str) -> Result<usize, StartError> {
    let problem = |problem| StartError::option("--buffers", size, problem);
    let bytes = parse_size(size).ok_or_else(|| problem("not a size such as 256M"))?;
    if bytes < BUFFERS_MIN {
        return Err(problem("less than 8M"));
    }
    usize::try_from(bytes).map_err(|_| problem("more than this machine can address"))
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

/// Where `--admin` answers, if that is an address by which others know this machine.
fn management_url(args: &ServeArgs) -> Option<String> {
    let address = args.admin.filter(|address| !address.ip().is_unspecified())?;
    let is_plain = args.tls_cert.is_none() && (address.ip().is_loopback() || args.admin_plain);
    let scheme = if is_plain { "http" } else { "https" };
    Some(format!("{scheme}://{address}/healthz"))
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

pub(crate) fn state_directory(given: Option<PathBuf>) -> PathBuf {
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

/// Random bytes from the operating system.
pub(crate) fn entropy(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has randomness once it is up");
}

/// Chunks that the smallest pool holds: fewer would make commands wait for each other all the time.
const BUFFERS_MIN: u64 = 8 << 20;
/// Disks that the first lines name.
const UNITS_NAMED: usize = 32;
