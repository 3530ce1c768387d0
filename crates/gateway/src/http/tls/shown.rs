//! A certificate with its key, and what it is called.

use tidegate_settings::certificate::Certified;

/// A certificate that visitors are shown.
#[derive(Debug)]
pub struct Shown {
    /// For metrics and logs.
    pub name: String,
    pub certified: Certified,
}
