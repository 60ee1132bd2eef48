//! Why a host serves nothing over RDMA, and what would change that: for logs, the API and the command line.

/// A cause.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unavailable {
    /// The program was built without the feature.
    NotBuiltIn,
    /// A library is not there, or is none; as the loader says it.
    NoLibrary(String),
    /// No RDMA device, or no kernel support. One may come at any time.
    NoDevice,
    /// Less memory may be locked than the buffers need.
    MemoryLimit {
        /// Bytes of all regions.
        needed: u64,
        /// The limit, bytes.
        allowed: u64,
    },
    /// The system refused something that it gives to every process, most likely a descriptor.
    System(String),
}

impl Unavailable {
    /// What is the matter.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::NotBuiltIn => "it is not built in".to_owned(),
            Self::NoLibrary(error) | Self::System(error) => error.clone(),
            Self::NoDevice => "this host has no RDMA device".to_owned(),
            Self::MemoryLimit { needed, allowed } => {
                format!("{needed} bytes of memory must be locked and {allowed} may be")
            }
        }
    }

    /// What would change that.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotBuiltIn => "use a release, or build with `--features iser`",
            Self::NoLibrary(_) => "install rdma-core (Debian: libibverbs1 librdmacm1 ibverbs-providers)",
            Self::NoDevice => "load its driver, or make a device (`rdma link add rxe0 type rxe netdev eth0`)",
            Self::MemoryLimit { .. } => {
                "raise RLIMIT_MEMLOCK (`ulimit -l`, LimitMEMLOCK=infinity in a systemd unit), grant CAP_IPC_LOCK, or \
                 make the buffer pool smaller"
            }
            Self::System(_) => "see to the system's limits (`ulimit -a`) and start again",
        }
    }
}

impl std::fmt::Display for Unavailable {
    /// Both, in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.reason(), self.remedy())
    }
}

impl std::error::Error for Unavailable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_its_figures_and_what_to_do() {
        let limit = Unavailable::MemoryLimit {
            needed: 335_544_320,
            allowed: 8_388_608,
        };
        let line = limit.to_string();
        assert!(line.starts_with(
            "335544320 bytes of memory must be locked and 8388608 may be; raise RLIMIT_MEMLOCK"
        ));
        assert!(!line.contains('\n'));
    }
}
