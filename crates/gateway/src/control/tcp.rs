//! Listens for TCP services (`[[tcp]]`), at the start and on reload.

use std::sync::Arc;

use tidegate_settings::{Settings, Tcp};

use crate::base::clock::Clock;
use crate::control::kernel::KernelControl;
use crate::shared::listening::{ListenConfig, ListenError, listen};
use crate::shared::tcp::{NewAddress, TcpServices};

/// The listening sockets of TCP services, as many for each as for visitors.
pub struct TcpListeners {
    services: Arc<TcpServices>,
    kernel: Arc<KernelControl>,
    config: ListenConfig,
}

impl TcpListeners {
    pub fn new(services: Arc<TcpServices>, kernel: Arc<KernelControl>, config: ListenConfig) -> Self {
        Self { services, kernel, config }
    }

    /// Listens at the addresses of `settings` that nobody listens at yet. They are closed again unless they
    /// are put in force. Calls the kernel, which may take a while.
    ///
    /// # Errors
    /// The system does not permit it.
    pub fn listen(&self, settings: &Settings) -> Result<Vec<NewAddress>, ListenError> {
        let missing = self.services.missing(&settings.tcp);
        missing.into_iter().map(|tcp| self.listen_for(tcp)).collect()
    }

    fn listen_for(&self, tcp: &Tcp) -> Result<NewAddress, ListenError> {
        let listened = listen(&format!("tcp.{}.listen", tcp.name), tcp.listen, self.config)?;
        if self.config.priorities > 1 {
            self.kernel.prioritise(&listened.fds());
        }
        tracing::info!(service = tcp.name, listen = %listened.all.address(), to = tcp.to, "a TCP service");
        Ok(NewAddress::new(tcp, listened.all, listened.of_workers))
    }

    /// Services that are not in `settings` any more accept nothing from now on; the connections that they
    /// have go on.
    pub fn put_in_force(&self, settings: &Settings, new: Vec<NewAddress>, clock: &Clock) {
        self.services.put_in_force(&settings.tcp, new, clock);
    }
}
