//! Certificates and keys as files have them: what is served to visitors, and which authorities are believed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use x509_cert::der::{self, Decode, Reader as _, SliceReader, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Largest file of certificates or a key. Bundles of all public authorities are a quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Least bits of an RSA key: what browsers and public authorities accept.
const MIN_RSA_BITS: usize = 2048;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// MD5 and SHA-1 with RSA, SHA-1 with ECDSA: browsers refuse them.
const BROKEN: [(ObjectIdentifier, &str); 3] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4"), "MD5"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"), "SHA-1"),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"), "SHA-1"),
];

/// A chain with its key, ready to be served.
#[derive(Clone, Debug)]
pub struct Certified {
    pub key: Arc<CertifiedKey>,
    /// The names that the first certificate is for, in lower case, some like `*.shop.example`.
    pub names: Vec<String>,
    /// Seconds since the Unix epoch.
    pub not_before: u64,
    pub not_after: u64,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {expected}; got {got}")]
pub struct BadFile {
    /// The key of `[[certificate]]` that names it.
    pub key: &'static str,
    pub expected: String,
    pub got: String,
}

fn bad<T>(key: &'static str, expected: &str, got: impl Into<String>) -> Result<T, BadFile> {
    Err(BadFile { key, expected: expected.into(), got: got.into() })
}

impl Certified {
    /// Reads a chain and its key, and an OCSP response that is sent with them.
    ///
    /// # Errors
    /// A file cannot be read or has something else; they do not belong together; nobody would trust them.
    pub fn load(chain: &Path, key: &Path, ocsp: Option<&Path>) -> Result<Self, BadFile> {
        let (chain, key) = (read("cert", chain)?, read("key", key)?);
        let mut certified = Self::from_pem(&chain, &key)?;
        if let Some(path) = ocsp {
            let response = read("ocsp", path)?;
            if !is_ocsp_response(&response) {
                return bad("ocsp", "a successful OCSP response in DER", "something else");
            }
            let key = CertifiedKey { ocsp: Some(response), ..(*certified.key).clone() };
            certified.key = Arc::new(key);
        }
        Ok(certified)
    }

    /// Of a chain and a key in PEM.
    ///
    /// # Errors
    /// As [`Certified::load`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, BadFile> {
        const CHAIN: &str = "certificates in PEM, the server's own first";
        let certificates = match CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>() {
            Ok(certificates) if certificates.is_empty() => return bad("cert", CHAIN, "none"),
            Ok(certificates) => certificates,
            Err(error) => return bad("cert", CHAIN, error.to_string()),
        };
        let parsed = certificates.iter().map(|one| CertificateInner::<Raw>::from_der(one));
        let parsed = match parsed.collect::<Result<Vec<_>, _>>() {
            Ok(parsed) => parsed,
            Err(error) => return bad("cert", CHAIN, format!("one that is damaged ({error})")),
        };
        let own = parsed[0].tbs_certificate();
        for one in &parsed {
            is_strong(one)?;
        }
        let private = match PrivateKeyDer::from_pem_slice(key) {
            Ok(private) => private,
            Err(_) => return bad("key", "a private key in PEM, not encrypted", "none (it is not shown)"),
        };
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private);
        let Ok(signer): Result<Arc<dyn SigningKey>, _> = signer else {
            return bad("key", "an RSA, ECDSA or Ed25519 key", "another one (it is not shown)");
        };
        let names = names_of(&parsed[0]);
        let (not_before, not_after) = (own.validity().not_before, own.validity().not_after);
        let key = CertifiedKey::new(certificates, signer);
        if key.keys_match().is_err() {
            return bad("key", "the key of the first certificate in `cert`", "the key of another one");
        }
        Ok(Self {
            key: Arc::new(key),
            names,
            not_before: not_before.to_unix_duration().as_secs(),
            not_after: not_after.to_unix_duration().as_secs(),
        })
    }
}

/// Reads the authorities that are believed.
///
/// # Errors
/// The file cannot be read, or has no certificate of an authority.
pub fn authorities(path: &Path) -> Result<RootCertStore, BadFile> {
    const EXPECTED: &str = "certificates of authorities in PEM";
    let text = read("ca", path)?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let added =
            certificate.map_err(|e| e.to_string()).and_then(|one| store.add(one).map_err(|e| e.to_string()));
        if let Err(error) = added {
            return bad("ca", EXPECTED, error);
        }
    }
    if store.is_empty() { bad("ca", EXPECTED, "none") } else { Ok(store) }
}

/// The subject of a certificate, as RFC 4514 writes it; what is not visible ASCII is escaped.
pub fn subject(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    let mut subject = String::new();
    for byte in certificate.tbs_certificate().subject().to_string().bytes() {
        match byte {
            b' '..=b'~' => subject.push(byte.into()),
            _ => subject.push_str(&format!("\\{byte:02X}")),
        }
    }
    Some(subject)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, BadFile> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => bad(key, "a readable file", error.to_string()),
        Ok(_) if bytes.len() as u64 > MAX_FILE_BYTES => {
            bad(key, &format!("a file of at most {MAX_FILE_BYTES} bytes"), "a larger one")
        }
        Ok(_) => Ok(bytes),
    }
}

/// Bits of the modulus of an RSA key (RFC 8017, A.1.1).
fn rsa_bits(key: &[u8]) -> der::Result<usize> {
    let mut reader = SliceReader::new(key)?;
    let bits = reader.sequence(|inner| {
        let modulus = UintRef::decode(inner)?;
        UintRef::decode(inner)?;
        let bytes = modulus.as_bytes();
        let unused = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
        Ok::<_, der::Error>(bytes.len() * 8 - unused)
    })?;
    reader.finish()?;
    Ok(bits)
}

/// Whether browsers would refuse a certificate for its key or its signature.
fn is_strong(certificate: &CertificateInner<Raw>) -> Result<(), BadFile> {
    let own = certificate.tbs_certificate();
    // A root is believed for itself: nobody looks at its signature.
    let is_root = own.subject() == own.issuer();
    let algorithm = certificate.signature_algorithm().oid;
    if let Some((_, name)) = BROKEN.iter().find(|(oid, _)| *oid == algorithm && !is_root) {
        return bad("cert", "certificates signed with SHA-256 or better", format!("one signed with {name}"));
    }
    let key = own.subject_public_key_info();
    if key.algorithm.oid != RSA {
        return Ok(());
    }
    let bits = key.subject_public_key.as_bytes().and_then(|der| rsa_bits(der).ok()).unwrap_or_default();
    match bits >= MIN_RSA_BITS {
        true => Ok(()),
        false => {
            bad("cert", &format!("RSA keys of at least {MIN_RSA_BITS} bits"), format!("one of {bits} bits"))
        }
    }
}

fn names_of(certificate: &CertificateInner<Raw>) -> Vec<String> {
    let found = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    let Ok(Some((_, SubjectAltName(names)))) = found else { return Vec::new() };
    let dns = |name: GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    };
    names.into_iter().filter_map(dns).collect()
}

/// RFC 6960, 4.2.1: whether it is a response that says something of a certificate.
fn is_ocsp_response(response: &[u8]) -> bool {
    let read = || {
        let mut reader = SliceReader::new(response)?;
        let is_successful = reader.sequence(|inner| {
            let status = AnyRef::decode(inner)?;
            // The bytes of the response itself, which only clients verify.
            AnyRef::decode(inner)?;
            Ok::<_, der::Error>(status.tag() == Tag::Enumerated && status.value() == [0])
        })?;
        reader.finish()?;
        Ok::<_, der::Error>(is_successful)
    };
    read().unwrap_or_default()
}
