//! An authority of the test's own, and what it signs, as files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::harness::TempDir;

pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Signed {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "An authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = Self { dir: TempDir::new(), issuer: issuer.expect("an authority") };
        authority.write("ca.pem", &authority.issuer.as_ref().pem());
        authority.write("ca-key.pem", &authority.issuer.key().serialize_pem());
        authority
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// For these host names, in files that `file` names.
    pub fn sign(&self, file: &str, names: &[&str]) -> Signed {
        self.sign_as(file, names, |_| {})
    }

    /// As [`Authority::sign`], with other parameters.
    pub fn sign_as(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Signed {
            cert: self.write(&format!("{file}.pem"), &certificate.pem()),
            key: self.write(&format!("{file}-key.pem"), &key.serialize_pem()),
        }
    }

    /// One that is valid no more.
    pub fn expired(&self, file: &str, names: &[&str]) -> Signed {
        self.sign_as(file, names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }
}

impl Signed {
    /// A `[[certificate]]` of it.
    pub fn section(&self) -> String {
        format!("\n[[certificate]]\ncert = {:?}\nkey = {:?}\n", self.cert, self.key)
    }
}
