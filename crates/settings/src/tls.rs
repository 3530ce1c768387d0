//! `listen.https`, `[tls]` and `[[certificate]]`: TLS to visitors (docs/tls.md).

use std::path::PathBuf;
use std::time::Duration;

use x509_cert::der::DateTime;

use super::certificate::{BadFile, Certified, authorities};
use super::kinds::net::{BASE_URL, EMAIL, FIELD_OR_NONE, HOST_GLOB, HOST_NAME, NAME_OR_NONE};
use super::kinds::{Choice, List, PathName};
use super::proxy_protocol::{ProxyHeader, ProxyProtocol};
use super::read::{Reader, item_path};
use super::{OriginProtocol, Role, Settings, kernel};

named! {
    /// The oldest version of TLS that is spoken.
    pub enum TlsVersion {
        #[default] V12 = "1.2",
        V13 = "1.3",
    }

    /// Whether visitors show certificates.
    pub enum ClientAuth {
        #[default] Off = "off",
        /// They are asked for one. One that cannot be verified ends the connection.
        Optional = "optional",
        Required = "required",
    }
}

section! {
    /// TLS: to visitors, and whom the gate believes itself.
    pub struct Tls {
        /// The oldest version that is spoken to visitors: "1.2" or "1.3".
        min_version: TlsVersion = TlsVersion::V12 => Choice;
        /// Whether visitors show certificates: "off", "optional" or "required".
        client_auth: ClientAuth = ClientAuth::Off => Choice;
        /// Authorities that visitors' certificates must be of: a file in PEM.
        client_ca: Option<PathBuf> = None => PathName::ReadableFile;
        /// Request field in which the origin gets the subject of a visitor's verified certificate. While
        /// there is `listen.https`, only a trusted proxy can send it itself. Empty: it gets none.
        client_field: String = "x-client-cert-subject".into() => FIELD_OR_NONE;
        /// Authorities that are believed besides those of the system, by all connections that the gate makes
        /// to `https://` addresses: a file in PEM.
        ca: Option<PathBuf> = None => PathName::ReadableFile;
    }

    /// Certificates that visitors are shown, chosen by the name that they ask for. The first is the default.
    pub struct Certificate {
        /// Its name in metrics and logs; empty: the first of its host names.
        name: String = String::new() => NAME_OR_NONE;
        /// The certificate and those between it and its authority: a file in PEM.
        cert: Option<PathBuf> = None => PathName::ReadableFile;
        /// Its private key: a file in PEM.
        key: Option<PathBuf> = None => PathName::ReadableFile;
        /// OCSP response that is sent with it, in DER, which something else keeps fresh; empty: none.
        ocsp: Option<PathBuf> = None => PathName::ReadableFile;
        /// Host names that it is shown for; empty: those in it.
        names: Vec<String> = Vec::new() => List(HOST_GLOB);
    }
}

named! {
    /// How the authority is shown that the gate has a host name.
    pub enum Challenge {
        /// One after the other, until one works.
        #[default] Auto = "auto",
        /// By an answer at port 80 (RFC 8555, 8.3).
        Http = "http-01",
        /// By a certificate at port 443 (RFC 8737).
        TlsAlpn = "tls-alpn-01",
    }
}

section! {
    /// A certificate that the gate gets and renews itself, by ACME (RFC 8555). With `domains` the operator
    /// accepts the terms of the authority.
    pub struct Acme {
        /// Host names of the certificate; empty: none is got.
        domains: Vec<String> = Vec::new() => List(HOST_NAME);
        /// Whom the authority writes to; empty: nobody.
        email: String = String::new() => EMAIL;
        /// The authority's directory.
        directory: String = "https://acme-v02.api.letsencrypt.org/directory".into() => BASE_URL;
        /// How the authority is shown that the gate has the names: "http-01" at its port 80, "tls-alpn-01" at
        /// its port 443, "auto" one after the other until one works.
        challenge: Challenge = Challenge::Auto => Choice;
    }
}

impl Certificate {
    /// Reads its files.
    ///
    /// # Errors
    /// They are not what they should be.
    pub fn load(&self) -> Result<Certified, BadFile> {
        let missing = |key| BadFile { key, expected: "the path of a file".into(), got: "nothing".into() };
        let cert = self.cert.as_deref().ok_or_else(|| missing("cert"))?;
        let key = self.key.as_deref().ok_or_else(|| missing("key"))?;
        let mut certified = Certified::load(cert, key, self.ocsp.as_deref())?;
        if !self.names.is_empty() {
            certified.names = self.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        }
        Ok(certified)
    }
}

impl Settings {
    /// Whether the gate connects to an `https://` URL, other than to the origin.
    pub fn calls_https(&self) -> bool {
        let is_https = |url: &str| url.starts_with("https://");
        let of_role = match &self.role {
            Role::TokenCheck { feedback_url, peers, .. } => {
                is_https(feedback_url) || peers.iter().any(|peer| is_https(peer))
            }
            Role::Gate | Role::TokenGen { .. } => false,
        };
        of_role
            || self.application.iter().any(|one| is_https(&one.url))
            || !self.acme.domains.is_empty()
            || self.detector.iter().any(|one| is_https(&one.source))
    }
}

pub(crate) fn warn(settings: &Settings, all: &mut Vec<String>) {
    if settings.origin.speaks_tls() && !settings.origin.verify {
        all.push(
            "origin.verify: certificates of the origin are not verified: whoever is between the gate and the origin can \
             read and change everything. Expected true, with the origin's authority in origin.ca."
                .into(),
        );
    }
}

fn check_origin(settings: &Settings, out: &mut Reader) {
    let origin = &settings.origin;
    if origin.certificate.is_some() != origin.key.is_some() {
        let (has, misses) =
            if origin.key.is_none() { ("certificate", "key") } else { ("key", "certificate") };
        out.conflict(&format!("origin.{has}"), format!("`origin.{misses}` beside it"), "none", None);
    }
    if origin.protocol != OriginProtocol::Http1 && origin.proxy_protocol != ProxyHeader::Off {
        let expected =
            "\"off\" unless `origin.protocol` is \"http1\": a connection of HTTP/2 is of many visitors";
        out.conflict("origin.proxy_protocol", expected, "a version", None);
    }
    if origin.speaks_tls() {
        return;
    }
    let set = [
        ("ca", origin.ca.is_some()),
        ("server_name", !origin.server_name.is_empty()),
        ("certificate", origin.certificate.is_some()),
        ("verify", !origin.verify),
    ];
    for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        let expected = "an `https://` address in `origin.replicas`, which alone has certificates";
        out.conflict(&format!("origin.{key}"), expected, "none", None);
    }
}

/// Reports keys that contradict each other. No file is read: a running gate checks every change of a tunable.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    let (listen, tls) = (&settings.listen, &settings.tls);
    check_origin(settings, out);
    let names = settings.item_names("certificate");
    for (i, name) in names.iter().enumerate() {
        if !name.is_empty() && names[..i].contains(name) {
            let key = format!("{}.name", item_path("certificate", name, i));
            out.conflict(&key, "names that differ", format!("\"{name}\" again"), None);
        }
    }
    if listen.proxy_protocol != ProxyProtocol::Off && settings.proxy.trusted.is_empty() {
        let expected = "`proxy.trusted`, the proxies that may name visitors, beside it";
        out.conflict("listen.proxy_protocol", expected, "none", None);
    }
    match listen.https {
        None if !settings.certificate.is_empty() && !listen.admin_https => {
            let expected = "`listen.https`, like \"0.0.0.0:443\", beside a certificate";
            out.conflict("certificate#0", expected, "none", None);
        }
        None if listen.redirect_https => {
            out.conflict("listen.redirect_https", "`listen.https` beside it", "none", None);
        }
        None if !settings.acme.domains.is_empty() => {
            let expected = "`listen.https`, like \"0.0.0.0:443\", beside it";
            out.conflict("acme.domains", expected, "none", None);
        }
        Some(_) if settings.certificate.is_empty() && settings.acme.domains.is_empty() => {
            let expected = "a [[certificate]] or `acme.domains` beside it";
            out.conflict("listen.https", expected, "none", None);
        }
        _ => {}
    }
    if listen.admin_https && settings.certificate.is_empty() && settings.acme.domains.is_empty() {
        let expected = "a [[certificate]] or `acme.domains` beside it";
        out.conflict("listen.admin_https", expected, "none", None);
    }
    if let Some(https) = listen.https {
        for (key, other) in [("listen.http", listen.http.ip()), ("listen.admin", Some(listen.admin))] {
            if other.is_some_and(|other| kernel::overlap(other, https)) {
                let expected = format!("another port than `{key}`");
                out.conflict("listen.https", expected, format!("{https} for both"), None);
            }
        }
    }
    match (tls.client_auth, &tls.client_ca) {
        (ClientAuth::Off, Some(_)) => {
            let expected = "`tls.client_auth`, \"optional\" or \"required\", beside it";
            out.conflict("tls.client_ca", expected, "\"off\"", None);
        }
        (ClientAuth::Optional | ClientAuth::Required, None) => {
            let expected = "`tls.client_ca`, the authorities of visitors' certificates";
            out.conflict("tls.client_auth", expected, "none", None);
        }
        _ => {}
    }
}

/// Seconds since the Unix epoch, as people write an instant.
pub fn instant(seconds: u64) -> String {
    let date = DateTime::from_unix_duration(Duration::from_secs(seconds));
    date.map_or_else(|_| format!("{seconds} s after 1970"), |date| date.to_string())
}

/// Reports files that are not what they should be; with `now`, in seconds since the Unix epoch, also
/// certificates that are not valid then. A gate starts with an expired certificate, so that an outage of
/// renewal does not become one of everything; who asks for mistakes is told.
pub(crate) fn check_files(settings: &Settings, now: Option<u64>, out: &mut Reader) {
    for (i, one) in settings.certificate.iter().enumerate() {
        let path = item_path("certificate", &one.name, i);
        let certified = match one.load() {
            Ok(certified) => certified,
            Err(BadFile { key, expected, got }) => {
                out.conflict(&format!("{path}.{key}"), expected, got, None);
                continue;
            }
        };
        match now {
            Some(now) if now > certified.not_after => {
                let got = format!("one that expired at {}", instant(certified.not_after));
                out.conflict(&format!("{path}.cert"), "a certificate that is valid", got, None);
            }
            Some(now) if now < certified.not_before => {
                let got = format!("one that begins at {}", instant(certified.not_before));
                out.conflict(&format!("{path}.cert"), "a certificate that is valid", got, None);
            }
            _ => {}
        }
        if certified.names.is_empty() && i > 0 {
            let expected = "a certificate with host names, or `names` beside it";
            out.conflict(&format!("{path}.cert"), expected, "one without", None);
        }
    }
    let origin = &settings.origin;
    if let (Some(certificate), Some(key)) = (&origin.certificate, &origin.key)
        && let Err(BadFile { key, expected, got }) = Certified::load(certificate, key, None)
    {
        let key = if key == "cert" { "certificate" } else { key };
        out.conflict(&format!("origin.{key}"), expected, got, None);
    }
    let files =
        [("tls.client_ca", &settings.tls.client_ca), ("tls.ca", &settings.tls.ca), ("origin.ca", &origin.ca)];
    for (key, file) in files {
        if let Some(file) = file
            && let Err(BadFile { expected, got, .. }) = authorities(file)
        {
            out.conflict(key, expected, got, None);
        }
    }
}
