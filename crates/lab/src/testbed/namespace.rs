//! Network namespaces without names. Nothing is left of them, their interfaces and the programs on these when
//! the last process or descriptor is gone, also after `kill -9`; and two runs cannot meet by a name.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use super::trouble::{Trouble, check, system};

/// The namespace of the thread that asks.
const CURRENT: &str = "/proc/thread-self/ns/net";

pub(super) struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// With the loopback interface up.
    pub fn new() -> Result<Self, Trouble> {
        let open = || {
            // SAFETY: no memory.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            File::open(CURRENT).map(OwnedFd::from)
        };
        // A thread that only lives for this: the others stay where they are.
        let fd = in_thread(open).map_err(system("a network namespace, which only root can make"))?;
        let namespace = Self { fd };
        namespace.ip(&["link set lo up".into()])?;
        Ok(namespace)
    }

    /// Takes the calling thread into the namespace, for good.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: no memory.
        check(unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
    }

    /// Runs `work` in the namespace. What is opened there stays there.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        in_thread(|| self.enter().map(|()| work()))
    }

    /// Whether the calling thread is in it.
    pub fn is_current(&self) -> io::Result<bool> {
        let of_file = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
        let own = File::from(self.fd.try_clone()?);
        Ok(of_file(&own)? == of_file(&File::open(CURRENT)?)?)
    }

    /// Executes commands of `ip`, one a line.
    ///
    /// # Errors
    /// The first one that `ip` refuses ends it.
    pub fn ip(&self, commands: &[String]) -> Result<(), Trouble> {
        let run = || {
            let mut command = Command::new("ip");
            command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            if let Some(mut input) = child.stdin.take() {
                input.write_all(commands.join("\n").as_bytes())?;
                input.write_all(b"\n")?;
            }
            child.wait_with_output()
        };
        let what = || system("the program `ip` (Debian: apt-get install iproute2)");
        let output = self.run(run).and_then(|output| output).map_err(what())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Trouble::Ip(said.lines().collect::<Vec<_>>().join(" ")))
    }

    /// How other programs of this machine name it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Sets something of the namespace below /proc/sys/net, if this kernel has it.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), Trouble> {
        let path = format!("/proc/sys/net/{name}");
        let set = || match std::fs::write(&path, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            set => set,
        };
        self.run(set).and_then(|set| set).map_err(system(path.clone()))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `work` in a thread of its own, whose namespaces end with it.
pub(super) fn in_thread<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("testbed".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
