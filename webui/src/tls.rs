//! The certificate of the management: one's own, or one that is made once, signed by itself, and kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{path}: {problem}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Certificate and key do not belong together, or cannot be used.
    #[error("certificate and key cannot be used: {0}")]
    Pair(#[from] rustls::Error),
    /// A certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// The certificate in use, as people are told of it: who is warned by a browser can compare the fingerprint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// Its file.
    pub path: PathBuf,
    /// Whether it was made here, and is signed by nobody but itself.
    pub is_made: bool,
    /// SHA-256 of its DER form: upper-case hexadecimal, a colon after each byte but the last.
    pub fingerprint: String,
}

/// The TLS configuration over a certificate and its key, PEM files. Without any, a certificate for `names` is made in
/// `directory` once and used again.
///
/// # Errors
/// A file cannot be read or used.
pub fn server_config(
    own: Option<(&Path, &Path)>,
    directory: &Path,
    names: Vec<String>,
) -> Result<(Arc<ServerConfig>, Certificate), TlsError> {
    let made = (directory.join("tls.crt"), directory.join("tls.key"));
    let (certificate, key) = match own {
        Some(own) => own,
        None => {
            if !made.0.exists() || !made.1.exists() {
                make(&made.0, &made.1, names)?;
            }
            (made.0.as_path(), made.1.as_path())
        }
    };
    let problem = |path: &Path, problem: String| TlsError::File {
        path: path.to_owned(),
        problem,
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| problem(certificate, error.to_string()))?;
    let Some(first) = chain.first() else {
        return Err(problem(
            certificate,
            "it holds no certificate in PEM form".to_owned(),
        ));
    };
    let shown = Certificate {
        path: certificate.to_owned(),
        is_made: own.is_none(),
        fingerprint: fingerprint(first),
    };
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| problem(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), shown))
}

fn fingerprint(certificate: &[u8]) -> String {
    let bytes = Sha256::digest(certificate);
    let pairs: Vec<_> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

fn make(certificate: &Path, key: &Path, names: Vec<String>) -> Result<(), TlsError> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let write = |path: &Path, text: &str| {
        let written = || -> io::Result<()> {
            let temporary = path.with_extension("new");
            let mut file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        written().map_err(|error| TlsError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    };
    write(key, &made.signing_key.serialize_pem())?;
    write(certificate, &made.cert.pem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (_, shown) = server_config(None, directory.path(), vec!["localhost".into()]).unwrap();
        assert!(shown.is_made);
        assert_eq!(shown.fingerprint.len(), 32 * 3 - 1);
        let first = fs::read(directory.path().join("tls.crt")).unwrap();
        let (_, again) = server_config(None, directory.path(), vec!["localhost".into()]).unwrap();
        assert_eq!(again, shown);
        assert_eq!(fs::read(directory.path().join("tls.crt")).unwrap(), first);
        let mode = fs::metadata(directory.path().join("tls.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.pem");
        fs::write(&file, "hello").unwrap();
        let error = server_config(Some((&file, &file)), directory.path(), Vec::new()).unwrap_err();
        assert!(error.to_string().contains("mine.pem"), "{error}");
    }
}
