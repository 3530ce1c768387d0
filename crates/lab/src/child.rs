//! Processes of this very program, started for an experiment and ended with it, whatever happens.
//!
//! A child is asked to end by SIGTERM, given time to do so, and killed if it does not; dropping it does the
//! same. If this process is killed outright, the kernel ends its children (`PR_SET_PDEATHSIG`): an experiment
//! that was broken off must not leave a load generator behind.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tidegate_gateway::base::clock::Clock;

/// Time to end after SIGTERM: a gate drains, a load generator writes what it has.
const END_PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at a child. Nothing that is measured depends on it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a child's log that an error repeats.
const LOG_LINES: usize = 3;

pub(crate) fn pause() {
    std::thread::sleep(LOOK_EVERY);
}

/// Where a child runs.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The directory for its output.
    pub dir: &'a Path,
    /// Where it puts its own temporary files, if not where all do.
    pub temporary: Option<&'a Path>,
    /// The network namespace that it is in, if not ours.
    pub namespace: Option<BorrowedFd<'a>>,
}

pub(crate) struct Child {
    pub(crate) name: String,
    process: std::process::Child,
    ended: Option<ExitStatus>,
    out: PathBuf,
    log: PathBuf,
}

impl Child {
    /// Starts `program` with `arguments`; its output goes to `NAME.out` and `NAME.log` in the directory, so
    /// that no pipe can fill up and stop it.
    pub(crate) fn start(
        program: &Path,
        name: &str,
        arguments: &[OsString],
        place: &Place,
    ) -> io::Result<Self> {
        let Place { dir, temporary, namespace } = *place;
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&log)?);
        command.envs(temporary.map(|temporary| ("TMPDIR", temporary)));
        // A group of its own: Ctrl-C at a terminal reaches this process only, which then ends them in order.
        command.process_group(0);
        die_with_parent(&mut command);
        if let Some(namespace) = namespace {
            enter_network(&mut command, namespace.as_raw_fd());
        }
        Ok(Self { name: name.into(), process: command.spawn()?, ended: None, out, log })
    }

    pub(crate) fn output(&self) -> String {
        read_lossy(&self.out)
    }

    pub(crate) fn log(&self) -> String {
        read_lossy(&self.log)
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            // An error means that there is nothing to wait for any more; asked again, it stays so.
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended
    }

    /// One sentence on how it ended, with the last lines of its log.
    pub(crate) fn ending(&self) -> String {
        let how =
            self.ended.map_or_else(|| "is still running".into(), |status| format!("ended with {status}"));
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        if last.is_empty() {
            format!("{} {how}", self.name)
        } else {
            format!("{} {how}: {}", self.name, last.join(" | "))
        }
    }

    /// Asks it to end and waits; kills it when it does not.
    pub(crate) fn stop(&mut self, clock: &Clock) {
        self.ask_to_end();
        let deadline = clock.now() + END_PATIENCE;
        while self.ended().is_none() {
            if clock.now() >= deadline {
                // An error: it has just ended by itself.
                let _ = self.process.kill();
                self.ended = self.process.wait().ok();
                return;
            }
            pause();
        }
    }

    pub(crate) fn ask_to_end(&mut self) {
        if self.ended().is_none() {
            // SAFETY: a call without memory. The child has not been waited for, so its number is still its
            // own.
            unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGTERM) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(&Clock::new());
    }
}

/// The kernel sends SIGTERM when the thread that starts the child ends. Experiments are run on one thread,
/// which lives as long as they do.
fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec, only a system call without memory is made.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

fn enter_network(command: &mut Command, namespace: RawFd) {
    // SAFETY: between fork and exec, only a system call without memory is made.
    unsafe {
        command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

fn read_lossy(path: &Path) -> String {
    // A child's output is for people or is parsed afterwards: what is not UTF-8 fails there, with a message.
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
