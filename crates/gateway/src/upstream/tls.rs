//! TLS of connections that the gate makes: to replicas, and to what it asks (health checks, authorisers,
//! figures, the two-process link).

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tidegate_settings::certificate::{BadFile, Certified, authorities};
use tidegate_settings::{Origin, OriginProtocol, Settings};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    #[error("{0}: {1}")]
    File(&'static str, BadFile),
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// How connections to servers begin: whom the gate believes, and what it shows.
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// Who the server must be, if not who is connected to.
    name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Towards replicas; `None`: none speaks TLS.
    ///
    /// # Errors
    /// A file is not what it was when the settings were checked.
    pub fn of_origin(origin: &Origin) -> Result<Option<Self>, ClientTlsError> {
        if !origin.speaks_tls() {
            return Ok(None);
        }
        let roots = match &origin.ca {
            Some(file) => authorities(file).map_err(|wrong| ClientTlsError::File("origin.ca", wrong))?,
            None => of_system(),
        };
        let shown = match (&origin.certificate, &origin.key) {
            (Some(certificate), Some(key)) => {
                let certified = Certified::load(certificate, key, None);
                Some(certified.map_err(|wrong| ClientTlsError::File("origin.certificate", wrong))?)
            }
            _ => None,
        };
        let name = ServerName::try_from(origin.server_name.clone()).ok();
        let protocols: &[&[u8]] = match origin.protocol {
            OriginProtocol::Http1 => &[b"http/1.1"],
            OriginProtocol::Http2 => &[b"h2"],
            OriginProtocol::Auto => &[b"h2", b"http/1.1"],
        };
        Ok(Some(Self { config: client_config(roots, origin.verify, shown, protocols)?, name }))
    }

    /// Towards all others: the system's authorities, and those of `tls.ca`.
    ///
    /// # Errors
    /// As [`ClientTls::of_origin`].
    pub fn of_calls(settings: &Settings) -> Result<Option<Self>, ClientTlsError> {
        if !settings.calls_https() {
            return Ok(None);
        }
        Self::believing(settings.tls.ca.as_deref(), "tls.ca").map(Some)
    }

    /// HTTP/1.1 over TLS to servers that the system's authorities vouch for, or those of the file `ca`, which
    /// errors call `key`.
    ///
    /// # Errors
    /// As [`ClientTls::of_origin`].
    pub fn believing(ca: Option<&Path>, key: &'static str) -> Result<Self, ClientTlsError> {
        let mut roots = of_system();
        if let Some(file) = ca {
            let more = authorities(file).map_err(|wrong| ClientTlsError::File(key, wrong))?;
            roots.roots.extend(more.roots);
        }
        Ok(Self { config: client_config(roots, true, None, &[b"http/1.1"])?, name: None })
    }

    /// The handshake with `host`, a name or an address, over an open connection.
    ///
    /// # Errors
    /// The connection fails, or the server is not who it should be.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                ServerName::try_from(host).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?
            }
        };
        TlsConnector::from(self.config.clone()).connect(name, stream).await
    }
}

/// The authorities that the system believes, read once. Reading takes some milliseconds: never on a worker.
fn of_system() -> RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "authorities of the system cannot be read");
        }
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            tracing::warn!("the system believes no authority: install ca-certificates, or name a file");
        }
        roots
    };
    ROOTS.get_or_init(read).clone()
}

fn client_config(
    roots: RootCertStore,
    verifies: bool,
    shown: Option<Certified>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, ClientTlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match verifies {
        // Without any authority nothing is believed: each connection says so.
        true if roots.is_empty() => builder.with_root_certificates(roots),
        true => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_webpki_verifier(verifier.map_err(|e| rustls::Error::General(e.to_string()))?)
        }
        false => {
            tracing::warn!("certificates of the origin are not verified (origin.verify)");
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
    };
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(certified) => {
            let shown = rustls::sign::SingleCertAndKey::from((*certified.key).clone());
            builder.with_client_cert_resolver(Arc::new(shown))
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Believes every certificate (`origin.verify = false`), but only of a server that has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
