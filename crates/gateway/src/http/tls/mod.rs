//! TLS to visitors, and to clients of the admin API: which certificate they are shown, who may resume, and
//! the handshake (docs/tls.md).
//!
//! Visitors carry their sessions themselves, sealed in tickets, as they carry their turns: nothing is kept
//! for those who wait, and a poll that comes by another worker, or after a reload, resumes all the same.
//! Rejected: a session cache, which is memory per visitor and a lock that all workers share. Early data
//! (0-RTT) is not accepted: whoever records it could send it again.

use std::io;
use std::sync::Arc;

use rustls::server::{Acceptor, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};
use tidegate_http::{Fields, Name, is_text};
use tidegate_settings::certificate::{BadFile, authorities, subject};
use tidegate_settings::{ClientAuth, Settings, TlsVersion, instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::http::stream::{ClientCertificate, ConnInfo, Protocol};

pub mod acme;
mod certificates;
mod shown;

pub use acme::AcmeStore;
pub use certificates::Certificates;
pub use shown::Shown;

/// A certificate that expires so soon, in seconds, should have been renewed: authorities advise a third of
/// its life, which is at least ten days.
const SOON: u64 = 7 * 24 * 3600;

/// What ALPN offers, the preferred one first.
fn protocols(settings: &Settings) -> Vec<Vec<u8>> {
    let all: &[&[u8]] = if settings.listen.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    all.iter().map(|protocol| protocol.to_vec()).collect()
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Of the certificate of this number, from one.
    #[error("certificate {0}: {1}")]
    Certificate(usize, BadFile),
    #[error("tls.client_ca: {0}")]
    ClientCa(String),
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// How visitors are met at `listen.https`, and clients of the admin API with `listen.admin_https`. Compiled
/// from the settings; files are read here.
pub struct VisitorTls {
    config: Arc<ServerConfig>,
    /// Of the admin API: HTTP/1.1, and no certificates of clients, who have tokens.
    of_admin: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// Whose certificates visitors may show, and whether they must. A session that began under other rules is
    /// not resumed.
    client_auth: (ClientAuth, Vec<Vec<u8>>),
    /// Where the origin finds the subject of a visitor's certificate.
    client_field: Option<Box<str>>,
}

impl VisitorTls {
    /// `None`: nobody listens for TLS, neither for visitors nor for the admin API.
    ///
    /// # Errors
    /// A file is not what it was when the settings were checked, or the system has no randomness.
    pub fn new(settings: &Settings) -> Result<Option<Self>, TlsError> {
        if settings.listen.https.is_none() && !settings.listen.admin_https {
            return Ok(None);
        }
        let certificates = Arc::new(Certificates::load(&settings.certificate)?);
        let tls = &settings.tls;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions: &[_] = match tls.min_version {
            TlsVersion::V12 => &[&version::TLS13, &version::TLS12],
            TlsVersion::V13 => &[&version::TLS13],
        };
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
        let of_admin = builder.clone().with_no_client_auth().with_cert_resolver(certificates.clone());
        let mut roots = Vec::new();
        let builder = match (tls.client_auth, &tls.client_ca) {
            (ClientAuth::Off, _) | (_, None) => builder.with_no_client_auth(),
            (auth, Some(file)) => {
                let store = authorities(file).map_err(|e| TlsError::ClientCa(e.to_string()))?;
                roots = identity(&store);
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone());
                let verifier = match auth {
                    ClientAuth::Optional => verifier.allow_unauthenticated(),
                    ClientAuth::Off | ClientAuth::Required => verifier,
                };
                let verifier = verifier.build().map_err(|e| TlsError::ClientCa(e.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(certificates.clone());
        config.alpn_protocols = protocols(settings);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        Ok(Some(Self {
            config: Arc::new(config),
            of_admin: Arc::new(of_admin),
            certificates,
            client_auth: (tls.client_auth, roots),
            client_field: (settings.listen.https.is_some() && !tls.client_field.is_empty())
                .then(|| tls.client_field.to_ascii_lowercase().into()),
        }))
    }

    /// Lets visitors resume sessions that began before a reload, unless other certificates of theirs are
    /// accepted now. The certificate of ACME stays.
    pub fn succeed(&mut self, old: &Self) {
        self.certificates.succeed(&old.certificates);
        if self.client_auth == old.client_auth {
            let mut config = (*self.config).clone();
            config.ticketer = old.config.ticketer.clone();
            self.config = Arc::new(config);
        }
    }

    /// Names the subject of a visitor's certificate to the origin. Only a trusted peer's own word stays,
    /// which is about the visitor behind it.
    pub fn present(&self, fields: &mut Fields, is_trusted: bool, certificate: Option<&ClientCertificate>) {
        let Some(field) = self.client_field.as_deref() else { return };
        // `X_Client_Cert_Subject` is the same field to applications that see fields as variables (CGI).
        let is_same = |b: &u8| if *b == b'_' { b'-' } else { b.to_ascii_lowercase() };
        let is_disguised = |name: &[u8]| {
            name.contains(&b'_') && name.iter().map(is_same).eq(field.bytes().map(|b| is_same(&b)))
        };
        if fields.iter().any(|(name, _)| is_disguised(name)) {
            fields.retain(|name, _, _| !is_disguised(name));
        }
        let field = Name::of(field);
        if is_trusted && fields.contains(field) {
            return;
        }
        match certificate.filter(|one| is_text(one.subject.as_bytes())) {
            Some(one) => fields.set(field, one.subject.as_bytes()),
            None => _ = fields.remove(field),
        }
    }

    /// Says which certificates are not valid at `now`, in seconds since the Unix epoch, or not for long.
    pub fn warn(&self, now: u64) {
        for Shown { name, certified } in self.certificates.of_files() {
            let until = instant(certified.not_after);
            if now > certified.not_after {
                tracing::error!(certificate = name, until, "a certificate for visitors has expired");
            } else if now < certified.not_before {
                let from = instant(certified.not_before);
                tracing::error!(certificate = name, from, "a certificate for visitors is not valid yet");
            } else if certified.not_after - now < SOON {
                tracing::warn!(certificate = name, until, "a certificate for visitors expires soon");
            }
        }
    }

    /// The certificates, for metrics.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The handshake. `None`: it was not a visitor, but an authority that looked whether the gate has a name.
    ///
    /// # Errors
    /// The connection fails, or both sides have nothing in common.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let hello = start.client_hello();
        let is_challenge = hello.alpn().is_some_and(|mut offered| offered.any(|one| one == acme::ALPN));
        if is_challenge && let Some(name) = hello.server_name() {
            let config = self.certificates.acme().handshake(&name.to_ascii_lowercase());
            let config = config.ok_or_else(|| io::Error::other("a challenge that nobody has asked for"))?;
            start.into_stream(config).await?.shutdown().await?;
            return Ok(None);
        }
        start.into_stream(self.config.clone()).await.map(Some)
    }

    /// The handshake with a client of the admin API.
    ///
    /// # Errors
    /// As of [`VisitorTls::accept`].
    pub async fn accept_admin(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.of_admin.clone()).accept(stream).await
    }
}

fn identity(store: &RootCertStore) -> Vec<Vec<u8>> {
    let of = |root: &rustls::pki_types::TrustAnchor<'_>| {
        [&root.subject[..], &root.subject_public_key_info[..]].concat()
    };
    store.roots.iter().map(of).collect()
}

/// Whether the visitor resumed a session of an earlier connection.
pub fn is_resumed(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
}

/// What the handshake has told of a connection.
pub fn describe(stream: &TlsStream<TcpStream>, plain: ConnInfo) -> ConnInfo {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate
        .and_then(|der| subject(der))
        .map(|subject| Arc::new(ClientCertificate { subject: subject.into() }));
    ConnInfo {
        scheme: "https",
        protocol: match session.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        },
        server_name: session.server_name().map(|name| name.to_ascii_lowercase().into()),
        client_certificate: certificate,
        ..plain
    }
}
