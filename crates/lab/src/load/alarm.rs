//! A timer that rings on time: `timerfd`, some 50 µs late, where tokio's own timer counts in milliseconds. A
//! request sent a millisecond late is a millisecond too slow, and the latency that a proxy adds is a tenth of
//! that.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Longest time it is set to; a longer wait is woken in between.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Registers with the runtime that this is called in.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: `fd` is open and owned by the `AsyncFd`, which lends it out by shared reference only.
        Ok(Self(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?))
    }

    /// Waits until `when`, at most an hour. Setting it again is a system call, dropping the future is none.
    ///
    /// # Errors
    /// The system refuses the timer: a defect.
    pub(super) async fn wait(&self, when: Instant) -> io::Result<()> {
        let now = Instant::now();
        // A time of zero would switch the timer off.
        let delay = when.saturating_duration_since(now).clamp(Duration::from_nanos(1), MAX_SLEEP);
        let it_value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            // Readiness may be left over from the last time; reading tells and clears it.
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut [0u8; 8])?));
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}
