//! What keeps a testbed from being set up or from being played to the end.

use std::io;

use tidegate_kernel::KernelError;

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{what}: {error}")]
    System { what: String, error: io::Error },
    /// `ip` has refused something.
    #[error("ip: {0}")]
    Ip(String),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The gate did not start, or did not live to the end.
    #[error("{0}")]
    Process(String),
    /// A flood was to be sent where it could reach somebody.
    #[error("a flood is sent in a network namespace of its testbed only, and this is another one")]
    Outside,
    #[error("interrupted")]
    Stopped,
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Trouble {
    let what = what.into();
    move |error| Trouble::System { what, error }
}

/// What a system call says that returns less than 0.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
