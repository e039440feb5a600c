//! TLS: the certificate and key of a server, and the certificates that a client trusts.

use ropewalk_config::ControlSection;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, CertificateError, InvalidMessage, ServerConfig};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

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

/// The identity of a server: its certificate and private key.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Arc<ServerConfig>,
    certificate: PathBuf,
    /// Names and addresses of the certificate.
    names: Vec<String>,
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
        if chain.is_empty() {
            return Err(TlsError::Nothing { path: certificate.to_owned(), what: "certificate", label: "CERTIFICATE" });
        }
        let names = chain.first().map_or_else(Vec::new, |certificate| alternative_names(certificate));
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
        Ok(Self { config: Arc::new(config), certificate: certificate.to_owned(), names })
    }

    /// The file of the certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// A host of this certificate under which clients find a server that listens at this address: the address itself,
    /// a name of this machine for a local one, or the first name.
    pub fn host(&self, listens: IpAddr) -> Option<&str> {
        let is_usual = |name: &&String| !name.starts_with('*');
        let named = |wanted: &str| self.names.iter().find(|name| *name == wanted);
        let own = named(&listens.to_string());
        let local = || if listens.is_loopback() { named("localhost") } else { None };
        let is_other = |name: &&String| listens.is_loopback() || !is_local(name);
        let usual = || self.names.iter().filter(is_usual).find(is_other);
        own.or_else(local).or_else(usual).or_else(|| self.names.iter().find(is_usual)).map(String::as_str)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.config).into()
    }
}

fn is_local(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The names and addresses in the subject alternative names of a certificate (RFC 5280, 4.2.1.6), those of DNS first;
/// nothing where there are none or the bytes are something else.
fn alternative_names(certificate: &[u8]) -> Vec<String> {
    /// The extension's identifier, 2.5.29.17, with the head of its value.
    const IDENTIFIER: [u8; 5] = [0x06, 0x03, 0x55, 0x1D, 0x11];
    const OCTETS: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    const CRITICAL: u8 = 0x01;
    const DNS: u8 = 0x82;
    const ADDRESS: u8 = 0x87;
    let at = certificate.windows(IDENTIFIER.len()).position(|window| window == IDENTIFIER);
    let Some(mut rest) = at.map(|at| &certificate[at + IDENTIFIER.len()..]) else { return Vec::new() };
    if let Some((CRITICAL, _, behind)) = element(rest) {
        rest = behind;
    }
    let Some((OCTETS, inner, _)) = element(rest) else { return Vec::new() };
    let Some((SEQUENCE, mut rest, _)) = element(inner) else { return Vec::new() };
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    while let Some((tag, value, behind)) = element(rest) {
        match (tag, value.len()) {
            (DNS, _) => names.extend(std::str::from_utf8(value).map(str::to_owned)),
            (ADDRESS, 4) => addresses.extend(<[u8; 4]>::try_from(value).map(|bytes| Ipv4Addr::from(bytes).to_string())),
            (ADDRESS, 16) => {
                addresses.extend(<[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).to_string()))
            }
            _ => {}
        }
        rest = behind;
    }
    names.append(&mut addresses);
    names
}

/// The first element of DER: its tag, its value, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk::<2>()?;
    // The length, or how many bytes it has.
    let (length, rest) = match length {
        0..0x80 => (usize::from(length), rest),
        0x81 | 0x82 => {
            let (head, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (head.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (value, behind) = rest.split_at_checked(length)?;
    Some((tag, value, behind))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The extension with these names.
    fn extension(names: &[(u8, &[u8])]) -> Vec<u8> {
        let wrapped = |tag: u8, value: &[u8]| [&[tag, value.len() as u8], value].concat();
        let names: Vec<u8> = names.iter().flat_map(|(tag, name)| wrapped(*tag, name)).collect();
        let before = [0x30, 0x82, 0x01, 0x00, 0x06, 0x03, 0x55, 0x1D, 0x11, 0x01, 0x01, 0xFF];
        [&before[..], &wrapped(0x04, &wrapped(0x30, &names))].concat()
    }

    #[test]
    fn names_come_before_addresses_and_other_bytes_have_none() {
        let bytes = extension(&[
            (0x87, &[10, 0, 0, 1]),
            (0x82, b"*.daq"),
            (0x81, b"a@b"),
            (0x82, b"daq1"),
            (0x82, b"localhost"),
        ]);
        assert_eq!(alternative_names(&bytes), ["*.daq", "daq1", "localhost", "10.0.0.1"]);
        for end in 0..bytes.len() {
            assert!(alternative_names(&bytes[..end]).is_empty(), "cut after {end} bytes");
        }
    }

    #[test]
    fn a_server_on_every_address_has_the_name_that_others_know() {
        let config = || {
            let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
            let config = config.expect("the usual versions").with_no_client_auth();
            Arc::new(config.with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new())))
        };
        let identity = |names: &[&str]| Identity {
            config: config(),
            certificate: PathBuf::new(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let daq1 = identity(&["localhost", "*.daq", "daq1", "127.0.0.1", "10.0.0.1"]);
        for (listens, host) in
            [("0.0.0.0", "daq1"), ("10.0.0.1", "10.0.0.1"), ("10.0.0.2", "daq1"), ("127.0.0.2", "localhost")]
        {
            assert_eq!(daq1.host(listens.parse().expect("an address")), Some(host), "{listens}");
        }
        assert_eq!(identity(&["*.daq"]).host(Ipv4Addr::UNSPECIFIED.into()), None);
    }
}
