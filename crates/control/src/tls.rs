//! TLS: the certificate and key of a server, and the certificates that a client trusts.

use ropewalk_config::ControlSection;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, InvalidMessage, ServerConfig};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use webpki::EndEntityCert;

/// Reads a secret, a token or a private key, from a file that only its owner may read.
///
/// # Errors
/// If the file cannot be read, or if other users may read it.
pub(crate) fn read_secret(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        let why = format!("others may read it (mode {:o}): chmod 600", mode & 0o777);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Files with the trusted certificate authorities of a system: Debian, Fedora, SUSE, Alpine.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The environment variable that names another such file, as for other programs.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or others may read a key.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{path}: there is no {what} in it: a PEM file has lines such as `-----BEGIN {label}-----`")]
    Nothing {
        /// Its path.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// The PEM label of that.
        label: &'static str,
    },
    /// Key and certificate do not match, or one of them is of an unsupported kind.
    #[error("{certificate} and {key}: {why}")]
    Unfit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no file of certificate authorities.
    #[error("there are no certificates of authorities on this machine, in {AUTHORITIES_VARIABLE} or {AUTHORITIES:?}")]
    NoAuthorities,
}

/// The name of each machine for itself.
const LOCAL: &str = "localhost";

/// The identity of a server: its certificate and private key.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Arc<ServerConfig>,
    certificate: PathBuf,
    /// The certificate itself.
    own: CertificateDer<'static>,
}

impl Identity {
    /// Loads the configured certificate and key; none if none are configured.
    ///
    /// # Errors If a file cannot be read or has other content, other users may read the key, or key and certificate do
    /// not match.
    pub fn configured(section: &ControlSection) -> Result<Option<Self>, TlsError> {
        match (&section.certificate, &section.key) {
            (Some(certificate), Some(key)) => Self::of_files(certificate, key).map(Some),
            _ => Ok(None),
        }
    }

    fn of_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let of = |path: &Path, source| TlsError::File { path: path.to_owned(), source };
        let text = std::fs::read(certificate).map_err(|error| of(certificate, error))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
        let Some(own) = chain.first().cloned() else {
            return Err(TlsError::Nothing { path: certificate.to_owned(), what: "certificate", label: "CERTIFICATE" });
        };
        let text = read_secret(key).map_err(|error| of(key, error))?;
        let secret = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| TlsError::Nothing {
            path: key.to_owned(),
            what: "private key that needs no pass phrase",
            label: "PRIVATE KEY",
        })?;
        let unfit = |error: rustls::Error| {
            let why = match error {
                rustls::Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
                other => other.to_string(),
            };
            TlsError::Unfit { certificate: certificate.to_owned(), key: key.to_owned(), why }
        };
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(unfit)?.with_no_client_auth().with_single_cert(chain, secret);
        let mut config = config.map_err(unfit)?;
        // The server supports HTTP/1.1 only; browsers would offer a later version first.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificate: certificate.to_owned(), own })
    }

    /// The file of the certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// A name in this certificate under which clients find a server that listens at this address: the address itself,
    /// `localhost` for a local one, or the first name without a wildcard.
    pub fn host(&self, listens: IpAddr) -> Option<String> {
        let certificate = EndEntityCert::try_from(&self.own).ok()?;
        let is_in = |name: &str| {
            let name = ServerName::try_from(name);
            name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
        };
        let mut names = certificate.valid_dns_names().filter(|name| !name.starts_with('*') && *name != LOCAL);
        let own = Some(listens.to_string()).filter(|own| is_in(own));
        let local = || is_in(LOCAL).then(|| LOCAL.to_owned());
        let own = own.or_else(|| if listens.is_loopback() { local() } else { None });
        own.or_else(|| names.next().map(str::to_owned)).or_else(local)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.config).into()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns whether this URL uses TLS.
pub(crate) fn is_encrypted(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// Returns a client configuration that trusts only the certificates in `file`, or, without it, the system's.
///
/// # Errors
/// If the file cannot be read or contains no certificate.
pub(crate) fn trust(file: Option<&Path>) -> Result<TlsConfig, TlsError> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => of_the_system().ok_or(TlsError::NoAuthorities)?,
    };
    let text = std::fs::read(&path).map_err(|source| TlsError::File { path: path.clone(), source })?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(TlsError::Nothing { path, what: "certificate", label: "CERTIFICATE" });
    }
    Ok(believing(&certificates))
}

/// Returns a client configuration that trusts no certificate, for a plain HTTP client, which a server may redirect to
/// `https://`.
pub(crate) fn distrust() -> TlsConfig {
    believing(&[])
}

fn believing(certificates: &[Certificate<'static>]) -> TlsConfig {
    let roots = RootCerts::new_with_certs(certificates);
    TlsConfig::builder().root_certs(roots).unversioned_rustls_crypto_provider(provider()).build()
}

fn of_the_system() -> Option<PathBuf> {
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    named.or_else(|| AUTHORITIES.into_iter().map(PathBuf::from).find(|path| path.is_file()))
}

/// Explains a TLS error and says what to do about it; none for other errors.
pub(crate) fn explain(error: &ureq::Error) -> Option<String> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    let why = match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => "the server there does not speak TLS",
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer => {
                "its certificate is not signed by a trusted authority; --ca FILE names a certificate to trust"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name; ask under one that is in it"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
            // The most common mistake, which the library reports without a variant of its own: `openssl req -x509`
            // creates a certificate authority by default.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                "its certificate is that of an authority; make one with basicConstraints=CA:FALSE"
            }
            _ => return Some(error.to_string()),
        },
        _ => return Some(error.to_string()),
    };
    Some(why.to_owned())
}
