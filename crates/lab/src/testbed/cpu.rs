//! Which core does what, and how busy one is.
//!
//! A cable of veth delivers packets on the sender's core, so that a flood's victim would pay for nothing.
//! Where a testbed floods, the server's interface therefore receives in a thread of the kernel (threaded
//! NAPI) that is bound to the server's core and goes before all programs there, as interrupts of a network
//! card do: what it costs to receive a packet, to police it and to answer it is the server's. The switch's
//! port to the server has the same at the other core, where the network is.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::null;
use std::time::Duration;

use super::namespace::{Namespace, in_thread};
use super::trouble::{Trouble, check, system};
use crate::child::pause;

/// Looks for the kernel's thread before it counts as missing.
const LOOKS: u32 = 100;
/// How long an interface waits for more packets before its thread looks, as network cards do.
const COALESCE_NS: u64 = 100_000;
/// Looks in vain before the next packet wakes the thread: more than there are in a run.
const POLLS: u64 = 1_000_000_000;

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

/// Makes an interface receive in a thread of the kernel that is bound to `core` and goes before all programs.
pub(super) fn receive_on(namespace: &Namespace, interface: &str, core: usize) -> Result<(), Trouble> {
    set_feature(namespace, interface, ETHTOOL_SGRO, true)?;
    let threaded = || {
        namespace.enter()?;
        own_sys()?;
        for (name, value) in
            [("threaded", 1), ("gro_flush_timeout", COALESCE_NS), ("napi_defer_hard_irqs", POLLS)]
        {
            fs::write(format!("/sys/class/net/{interface}/{name}"), value.to_string())?;
        }
        Ok(())
    };
    in_thread(threaded).map_err(system(format!("threaded NAPI of {interface}")))?;
    let start = format!("napi/{interface}-");
    let found = (0..LOOKS).find_map(|_| {
        let found = kernel_thread(&start);
        if found.is_none() {
            pause();
        }
        found
    });
    let missing = || Trouble::Process(format!("the kernel has no thread {start}*"));
    let thread = found.ok_or_else(missing)?;
    bind(thread, core).and_then(|()| put_first(thread)).map_err(system("the interface's thread"))
}

/// Makes a thread go before all that have no real-time priority; the kernel leaves these a twentieth of the
/// time.
fn put_first(thread: libc::pid_t) -> io::Result<()> {
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: it reads the parameter only.
    check(unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const least) }).map(drop)
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

/// Of `linux/ethtool.h`: sets GRO, TSO.
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_STSO: u32 = 0x1f;
/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Makes the other end of an interface's cable receive by NAPI: veth does so only with GRO there, and only
/// what an interface without TSO sends.
pub(super) fn send_plainly(namespace: &Namespace, interface: &str) -> Result<(), Trouble> {
    set_feature(namespace, interface, ETHTOOL_STSO, false)
}

fn set_feature(namespace: &Namespace, interface: &str, feature: u32, on: bool) -> Result<(), Trouble> {
    let set = || namespace.enter().and_then(|()| ethtool(interface, [feature, on.into()]));
    in_thread(set).map_err(system(format!("GRO and TSO of {interface}")))
}

fn ethtool(interface: &str, mut value: [u32; 2]) -> io::Result<()> {
    let name = CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: the request names the interface by a string that fits, and points to the two numbers that
    // this command of ethtool reads, which live until the call has returned.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        let fd = OwnedFd::from_raw_fd(fd);
        let mut request: libc::ifreq = std::mem::zeroed();
        let bytes = name.as_bytes_with_nul();
        if bytes.len() > request.ifr_name.len() {
            return Err(io::Error::other("a name of at most 15 characters"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        check(libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &raw mut request)).map(drop)
    }
}

fn kernel_thread(start: &str) -> Option<libc::pid_t> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(entry.path().join("comm")).ok()?.starts_with(start).then_some(pid)
    })
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
        let [user, nice, system, idle, wait, irq, softirq, steal, ..] = *ticks.as_slice() else {
            return None;
        };
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
