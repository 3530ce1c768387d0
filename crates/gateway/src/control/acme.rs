//! Gets the certificate of `[acme]` and renews it (RFC 8555), on a thread of its own: no worker waits for an
//! authority, and no answer of one stops the gate.
//!
//! ```text
//! cached ─► shown ─► two thirds of its life ─► order ─► challenges ─► shown, cached
//!                              ▲                 │ failed: the old one stays
//!                              └──── back-off ◄──┘
//! ```
//!
//! The time of renewal is spread by a tenth of the life, so that many gates do not come at once. After a
//! failure the next order waits a minute, then two, up to six hours: authorities count failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, Error,
    HttpClient, Identifier, NewAccount, NewOrder, OrderStatus, RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tidegate_settings::certificate::{BadFile, Certified};
use tidegate_settings::{Acme, Challenge, instant};

use crate::base::state_dir::StateDir;
use crate::http::tls::acme::ChallengeError;
use crate::http::tls::{AcmeStore, Shown};
use crate::shared::{Drain, Shared, reached};
use crate::upstream::client::Call;
use crate::upstream::tls::ClientTls;

/// A changed configuration is noticed within this time, and the time of renewal.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FIRST_BACK_OFF: Duration = Duration::from_secs(60);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(6 * 3600);
/// Of one request to the authority.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Authorities look from several places, one after the other.
const ORDER_PATIENCE: Duration = Duration::from_secs(120);
const MAX_ANSWER_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("TLS to the authority is not set up")]
    NoTls,
    #[error(transparent)]
    Authority(#[from] Error),
    #[error(transparent)]
    Challenge(#[from] ChallengeError),
    #[error("the authority offers no challenge {0}")]
    NoChallenge(&'static str),
    #[error("the authority refused: {0}")]
    Refused(String),
    #[error("the certificate is not usable: {0}")]
    Certificate(#[from] BadFile),
}

/// What is kept over a restart.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// Of this authority.
    directory: String,
    account: Option<AccountCredentials>,
    certificate: Option<KeptCertificate>,
}

#[derive(Serialize, Deserialize)]
struct KeptCertificate {
    chain: String,
    key: String,
}

/// Orders certificates as long as the process accepts visitors.
///
/// # Errors
/// A thread cannot be started.
pub fn spawn(shared: Arc<Shared>, state: StateDir) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("acme".into()).spawn(move || {
        let mut drain = shared.drain.subscribe();
        runtime.block_on(async move {
            tokio::select! {
                () = reached(&mut drain, Drain::Accepting) => {}
                () = Orders::new(shared, state).run() => {}
            }
        });
    })?;
    Ok(())
}

struct Orders {
    shared: Arc<Shared>,
    state: StateDir,
    kept: Kept,
    /// In a row.
    failures: u32,
    /// Seconds since the Unix epoch; nothing is ordered before.
    not_before: u64,
}

impl Orders {
    fn new(shared: Arc<Shared>, state: StateDir) -> Self {
        let kept = match state.acme() {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%error, "what was kept of ACME is not usable");
                Kept::default()
            }),
            Ok(None) => Kept::default(),
            Err(error) => {
                tracing::warn!(%error, "what was kept of ACME cannot be read");
                Kept::default()
            }
        };
        Self { shared, state, kept, failures: 0, not_before: 0 }
    }

    async fn run(mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&mut self) {
        let config = self.shared.config.load_full();
        let (acme, Some(tls)) = (&config.settings.acme, &config.tls) else { return };
        if acme.domains.is_empty() {
            return;
        }
        let store = tls.certificates().acme();
        if self.kept.directory != acme.directory {
            self.kept = Kept { directory: acme.directory.clone(), ..Kept::default() };
            (self.failures, self.not_before) = (0, 0);
        }
        if store.shown().is_none()
            && let Some(kept) = &self.kept.certificate
            && let Ok(certified) = Certified::from_pem(kept.chain.as_bytes(), kept.key.as_bytes())
            && is_for(&certified, &acme.domains)
        {
            tracing::info!(until = instant(certified.not_after), "the certificate that was kept is shown");
            store.show(shown(acme, certified));
        }
        let now = self.shared.clock.now().as_millis() / 1000;
        let current = store.shown().filter(|one| is_for(&one.certified, &acme.domains));
        let due = current.as_ref().map_or(0, |one| due(&one.certified));
        if now < due.max(self.not_before) {
            return;
        }
        let ordered = self.order(acme, &store, config.calls_tls.clone()).await;
        store.forget_challenges();
        store.count(ordered.is_ok());
        match ordered {
            Ok(certified) => {
                let until = instant(certified.not_after);
                tracing::info!(domains = ?acme.domains, until, "a certificate was issued");
                (self.failures, self.not_before) = (0, 0);
                store.show(shown(acme, certified));
            }
            Err(error) => {
                let wait = back_off(self.failures);
                self.failures = self.failures.saturating_add(1);
                self.not_before = self.shared.clock.now().as_millis() / 1000 + wait.as_secs();
                let again_in_s = wait.as_secs();
                match current {
                    Some(_) => tracing::error!(%error, again_in_s, "no new certificate: the old one stays"),
                    None => {
                        tracing::error!(%error, again_in_s, "no certificate: visitors cannot come by TLS")
                    }
                }
            }
        }
    }

    async fn order(
        &mut self,
        acme: &Acme,
        store: &AcmeStore,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Certified, OrderError> {
        let account = self.account(acme, tls.ok_or(OrderError::NoTls)?).await?;
        let names: Vec<_> = acme.domains.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let kind = match (acme.challenge, self.failures % 2) {
            (Challenge::Http, _) | (Challenge::Auto, 0) => ChallengeType::Http01,
            (Challenge::TlsAlpn | Challenge::Auto, _) => ChallengeType::TlsAlpn01,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let is_http = kind == ChallengeType::Http01;
            let name = if is_http { "http-01" } else { "tls-alpn-01" };
            let mut challenge = authorization.challenge(kind.clone()).ok_or(OrderError::NoChallenge(name))?;
            let answer = challenge.key_authorization();
            if is_http {
                store.answer_with(&challenge.token, answer.as_str());
            } else {
                store.shake_with(&challenge.identifier().to_string(), answer.digest().as_ref())?;
            }
            challenge.set_ready().await?;
        }
        let patience = RetryPolicy::new().initial_delay(Duration::from_millis(500)).timeout(ORDER_PATIENCE);
        let status = order.poll_ready(&patience).await?;
        if status != OrderStatus::Ready {
            let mut why = format!("the order is {status:?}");
            let mut authorizations = order.authorizations();
            while let Some(Ok(authorization)) = authorizations.next().await {
                let errors = authorization.challenges.iter().filter_map(|one| one.error.as_ref());
                errors.for_each(|error| why.push_str(&format!("; {error}")));
            }
            return Err(OrderError::Refused(why));
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&patience).await?;
        let certified = Certified::from_pem(chain.as_bytes(), key.as_bytes())?;
        self.kept.certificate = Some(KeptCertificate { chain, key });
        self.save();
        Ok(certified)
    }

    /// The account that was kept, or a new one, with which the operator accepts the authority's terms.
    async fn account(&mut self, acme: &Acme, tls: Arc<ClientTls>) -> Result<Account, OrderError> {
        let builder = Account::builder_with_http(Box::new(Client { tls }));
        let kept = self.kept.account.as_ref().and_then(|kept| serde_json::to_value(kept).ok());
        if let Some(kept) = kept.and_then(|kept| serde_json::from_value(kept).ok()) {
            return Ok(builder.from_credentials(kept).await?);
        }
        let contact = format!("mailto:{}", acme.email);
        let contact: &[&str] = if acme.email.is_empty() { &[] } else { &[&contact] };
        let new = NewAccount { contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder.create(&new, acme.directory.clone(), None).await?;
        tracing::info!(directory = acme.directory, "an account was opened; its terms are accepted");
        self.kept.account = Some(credentials);
        self.save();
        Ok(account)
    }

    fn save(&self) {
        let saved = serde_json::to_vec(&self.kept).map_err(io::Error::other);
        if let Err(error) = saved.and_then(|bytes| self.state.save_acme(&bytes)) {
            tracing::error!(%error, "a certificate cannot be kept: it is ordered again after a restart");
        }
    }
}

fn shown(acme: &Acme, certified: Certified) -> Shown {
    Shown { name: acme.domains.first().cloned().unwrap_or_default(), certified }
}

fn is_for(certified: &Certified, domains: &[String]) -> bool {
    domains.iter().all(|name| certified.names.contains(&name.to_ascii_lowercase()))
}

/// When a certificate is renewed: between 60 % and 70 % of its life, always the same for one certificate.
fn due(certified: &Certified) -> u64 {
    let life = certified.not_after.saturating_sub(certified.not_before);
    let bytes = certified.key.cert.first().map_or(&[][..], |der| &der[der.len().saturating_sub(4)..]);
    let spread = bytes.iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte)) % 1000;
    certified.not_before + life * (6000 + spread) / 10_000
}

fn back_off(failures: u32) -> Duration {
    FIRST_BACK_OFF.saturating_mul(1 << failures.min(16)).min(LONGEST_BACK_OFF)
}

/// The authority, as `instant_acme` asks it.
struct Client {
    tls: Arc<ClientTls>,
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(head, body.to_bytes());
            let (replica, timeout, max_body) = (None, REQUEST_TIMEOUT, Some(MAX_ANSWER_BYTES));
            let call = Call { request, replica, tls: Some(&tls), timeout, max_body };
            let (parts, body) = call.send().await.map_err(Error::Other)?.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_and_longer_but_not_for_ever() {
        let waits: Vec<_> = [0, 1, 2, 8, 9, 40].map(|n| back_off(n).as_secs()).into();
        assert_eq!(waits, [60, 120, 240, 15_360, 21_600, 21_600]);
    }
}
