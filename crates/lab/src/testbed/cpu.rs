//! Which core does what, and how busy one is.
//!
//! A cable of veth delivers packets on the sender's core, so that a flood's victim would pay for nothing. Where
//! a testbed floods, what the server's interface receives is therefore handed to the server's core (receive
//! packet steering): what it costs to receive a packet, to police it and to answer it is the server's, as on a
//! machine with one core and a network card. What the server sends is handed to the other core, where the
//! network is.

use std::fs;
use std::io;
use std::ptr::null;
use std::time::Duration;

use super::namespace::{Namespace, in_thread};
use super::trouble::{Trouble, check, system};

/// The cores of a testbed that floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    /// Of the server and of its clients.
    pub server: usize,
    pub flood: usize,
}

impl Cores {
    /// The first two that this process may use; of one, both are this one.
    pub fn new() -> io::Result<Self> {
        // SAFETY: zeroed is the empty set, and the size is that of the set.
        let allowed = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            check(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set))?;
            (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect::<Vec<_>>()
        };
        let [first, ..] = allowed.as_slice() else { return Err(io::Error::other("no core at all")) };
        Ok(Self { server: *first, flood: *allowed.get(1).unwrap_or(first) })
    }
}

/// Binds a thread to a core; 0 is the calling one.
pub(super) fn bind(thread: libc::pid_t, core: usize) -> io::Result<()> {
    // SAFETY: zeroed is the empty set, and the size is that of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        check(libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set)).map(drop)
    }
}

/// Hands what an interface receives to `core`, before anything is done with it but native XDP.
pub(super) fn receive_on(namespace: &Namespace, interface: &str, core: usize) -> Result<(), Trouble> {
    let steer = || {
        namespace.enter()?;
        own_sys()?;
        fs::write(format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus"), mask(core))
    };
    in_thread(steer).map_err(system(format!("receive packet steering of {interface}")))
}

/// A set of one core as /sys has it: groups of 32 bits, the lowest last.
pub(super) fn mask(core: usize) -> String {
    let first = format!("{:x}", 1u32 << (core % 32));
    first + ",00000000".repeat(core / 32).as_str()
}

/// A mount of /sys that shows the namespace of the calling thread, for this thread alone.
fn own_sys() -> io::Result<()> {
    // SAFETY: strings that end with a zero, and null where the call takes nothing.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(null(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_PRIVATE, null()))?;
        check(libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, null())).map(drop)
    }
}

/// Time of a core since the start of the machine, in the clock's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CoreTime {
    pub all: u64,
    pub busy: u64,
    /// Of these, of the kernel: system calls, interrupts and what follows them.
    pub kernel: u64,
}

impl CoreTime {
    pub fn now(core: usize) -> Result<Self, Trouble> {
        let text = fs::read_to_string("/proc/stat").map_err(system("/proc/stat"))?;
        Ok(Self::read(&text, core).unwrap_or_default())
    }

    pub fn read(text: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core}");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // Guests' time is in the user's.
        let [user, nice, system, idle, wait, irq, softirq, steal, ..] = *ticks.as_slice() else { return None };
        let kernel = system + irq + softirq;
        let busy = user + nice + kernel + steal;
        Some(Self { all: busy + idle + wait, busy, kernel })
    }

    /// Shares of the time since then: busy, and in the kernel.
    pub fn since(self, before: Self) -> (f64, f64) {
        let all = (self.all - before.all).max(1) as f64;
        ((self.busy - before.busy) as f64 / all, (self.kernel - before.kernel) as f64 / all)
    }
}

/// Burns so much of the calling thread's CPU time.
pub(super) fn burn(time: Duration) {
    crate::origin::burn(time, || false);
}
