//! Chooses the certificate that a visitor is shown: by the name that it asks for (RFC 6066, 3), and among
//! several of one name the first whose kind of key the visitor knows.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tidegate_settings::Certificate;

use crate::http::tls::TlsError;
use crate::http::tls::acme::AcmeStore;
use crate::http::tls::shown::Shown;

#[derive(Debug)]
pub struct Certificates {
    shown: Vec<Shown>,
    /// By name, `*.shop.example` as `.shop.example`: indices of `shown`, in the order of the file.
    by_name: HashMap<String, Vec<usize>>,
    /// For names that are in no file.
    acme: ArcSwap<AcmeStore>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them is not what it should be.
    pub fn load(configured: &[Certificate]) -> Result<Self, TlsError> {
        let read = |(i, one): (usize, &Certificate)| {
            let certified = one.load().map_err(|wrong| TlsError::Certificate(i + 1, wrong))?;
            let number = (i + 1).to_string();
            let named = [Some(&one.name), certified.names.first(), Some(&number)];
            let name = named.into_iter().flatten().find(|name| !name.is_empty()).cloned();
            Ok(Shown { name: name.unwrap_or_default(), certified })
        };
        let shown = configured.iter().enumerate().map(read).collect::<Result<Vec<_>, TlsError>>()?;
        Ok(Self::new(shown))
    }

    fn new(shown: Vec<Shown>) -> Self {
        let mut by_name = HashMap::<String, Vec<usize>>::new();
        for (i, one) in shown.iter().enumerate() {
            for name in &one.certified.names {
                by_name.entry(name.strip_prefix('*').unwrap_or(name).to_owned()).or_default().push(i);
            }
        }
        Self { shown, by_name, acme: ArcSwap::default() }
    }

    pub fn of_files(&self) -> &[Shown] {
        &self.shown
    }

    pub fn acme(&self) -> Arc<AcmeStore> {
        self.acme.load_full()
    }

    /// Takes over what those before have from ACME.
    pub fn succeed(&self, old: &Self) {
        self.acme.store(old.acme());
    }

    /// The certificate for a host name, which may have a wildcard for its first label; without one, the
    /// first.
    fn find(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase);
        let exact = name.as_deref().and_then(|name| self.by_name.get(name));
        let wildcard = || {
            let name = name.as_deref()?;
            self.by_name.get(&name[name.find('.')?..])
        };
        let Some(found) = exact.or_else(wildcard) else {
            let of_acme = self.acme.load().shown();
            let is_meant =
                |one: &Arc<Shown>| name.as_ref().is_some_and(|name| one.certified.names.contains(name));
            return match (of_acme.filter(|one| self.shown.is_empty() || is_meant(one)), self.shown.first()) {
                (Some(one), _) => Some(one.certified.key.clone()),
                (None, first) => first.map(|one| one.certified.key.clone()),
            };
        };
        let all = || found.iter().filter_map(|i| self.shown.get(*i));
        let fitting = all().find(|one| one.certified.key.key.choose_scheme(schemes).is_some());
        fitting.or(all().next()).map(|one| one.certified.key.clone())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name(), hello.signature_schemes())
    }
}
