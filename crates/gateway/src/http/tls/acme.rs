//! What the gate has from its authority (ACME), and what it answers when the authority looks whether the gate
//! has a host name. Written by the thread that orders certificates, read by workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwap, ArcSwapOption};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::http::tls::shown::Shown;

/// The protocol of challenges at the port of TLS (RFC 8737, 6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// Outlives reloads.
#[derive(Debug, Default)]
pub struct AcmeStore {
    shown: ArcSwapOption<Shown>,
    /// Answers at [`crate::http::target`]'s paths, by token; empty nearly always.
    answers: ArcSwap<HashMap<String, String>>,
    /// How handshakes of the authority go, by host name.
    handshakes: ArcSwap<HashMap<String, Arc<ServerConfig>>>,
    pub issued: AtomicU64,
    pub failed: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    #[error("cannot make the certificate of a challenge: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificate of a challenge: {0}")]
    Tls(#[from] rustls::Error),
}

impl AcmeStore {
    /// The certificate, once there is one.
    pub fn shown(&self) -> Option<Arc<Shown>> {
        self.shown.load_full()
    }

    pub fn show(&self, certificate: Shown) {
        self.shown.store(Some(Arc::new(certificate)));
    }

    pub fn count(&self, is_issued: bool) {
        let counter = if is_issued { &self.issued } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }

    /// The answer to the challenge of this token.
    pub fn answer(&self, token: &str) -> Option<String> {
        let answers = self.answers.load();
        if answers.is_empty() { None } else { answers.get(token).cloned() }
    }

    pub fn answer_with(&self, token: &str, answer: &str) {
        let mut all = HashMap::clone(&self.answers.load());
        all.insert(token.to_owned(), answer.to_owned());
        self.answers.store(Arc::new(all));
    }

    /// How the authority's handshake about a host name goes.
    pub fn handshake(&self, name: &str) -> Option<Arc<ServerConfig>> {
        self.handshakes.load().get(name).cloned()
    }

    /// Shows the authority a certificate with the digest of the answer.
    ///
    /// # Errors
    /// The system has no randomness, or the name cannot be in a certificate.
    pub fn shake_with(&self, name: &str, digest: &[u8]) -> Result<(), ChallengeError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let private =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|e| rustls::Error::General(e.into()))?;
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private)?;
        let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.der().clone()], signer));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![ALPN.to_vec()];
        let mut all = HashMap::clone(&self.handshakes.load());
        all.insert(name.to_ascii_lowercase(), Arc::new(config));
        self.handshakes.store(Arc::new(all));
        Ok(())
    }

    /// The authority has looked.
    pub fn forget_challenges(&self) {
        self.answers.store(Arc::default());
        self.handshakes.store(Arc::default());
    }
}
