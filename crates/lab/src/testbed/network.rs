//! The machines of a testbed and the cables between them, by `ip` (iproute2).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::addresses::{FLOOD_FROM, FLOOD_MAC, FLOOD_MACHINE, FLOOD_PREFIX, SERVER, SERVER_MAC, machine};
use super::namespace::Namespace;
use super::spec::Testbed;
use super::trouble::{Trouble, system};

/// The interface of each client.
pub(super) const CLIENT_INTERFACE: &str = "eth0";

/// All machines. Dropping it is the end of them.
pub(super) struct Network {
    pub server: Namespace,
    /// The server's interface. No other run on this machine has one of that name, nor of the port's.
    pub interface: String,
    /// The switch's port to the server.
    pub port: String,
    /// The machines of each group of clients.
    pub clients: Vec<Vec<Arc<Namespace>>>,
    pub flood: Option<Arc<Namespace>>,
    pub switch: Namespace,
}

impl Network {
    pub fn new(testbed: &Testbed) -> Result<Self, Trouble> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The kernel's threads are named after interfaces, and are not in a namespace.
        let run = format!("{}x{}", std::process::id(), COUNT.fetch_add(1, Relaxed) % 1000);
        let (interface, port) = (format!("t{run}"), format!("s{run}"));
        let switch = Switch::new()?;
        let server = Namespace::new()?;
        switch.plug(&port, &server, &interface, *SERVER.ip(), Some(SERVER_MAC))?;
        let mut ports = 0;
        let mut machine_at = |address: Ipv4Addr, mac: Option<[u8; 6]>| {
            let namespace = Namespace::new()?;
            ports += 1;
            switch.plug(&format!("p{ports}"), &namespace, CLIENT_INTERFACE, address, mac)?;
            Ok::<_, Trouble>(namespace)
        };
        let mut clients = Vec::new();
        for (group, client) in testbed.clients.iter().enumerate() {
            let machines = (1..=client.machines).map(|number| {
                let namespace = machine_at(machine(group, number), None)?;
                // As in the paper: 1, 2, 4, ... seconds. Linux 6.5 and later begin with four times 1 second.
                namespace.sysctl("ipv4/tcp_syn_linear_timeouts", "0")?;
                Ok(Arc::new(namespace))
            });
            clients.push(machines.collect::<Result<Vec<_>, Trouble>>()?);
        }
        let flood = match testbed.flood {
            Some(_) => Some(Arc::new(machine_at(FLOOD_MACHINE, Some(FLOOD_MAC))?)),
            None => None,
        };
        // The answers to a flood go the way of the flood, as over a router, and end there.
        if flood.is_some() {
            server.ip(&[format!("route add {FLOOD_FROM}/{FLOOD_PREFIX} via {FLOOD_MACHINE}")])?;
        }
        let cookies = if testbed.server.has_syn_cookies { "1" } else { "0" };
        server.sysctl("ipv4/tcp_syncookies", cookies)?;
        Ok(Self { server, interface, port, clients, flood, switch: switch.namespace })
    }

    /// Packets that the server's interface has received.
    pub fn received(&self) -> Result<u64, Trouble> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.server.run(read).and_then(|text| text).map_err(system("counters of interfaces"))?;
        Ok(packets(&text, &self.interface).unwrap_or(0))
    }
}

/// The packets that an interface has received, from /proc/net/dev.
pub(super) fn packets(text: &str, interface: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A bridge, which each machine's cable is plugged into.
struct Switch {
    namespace: Namespace,
}

impl Switch {
    fn new() -> Result<Self, Trouble> {
        let namespace = Namespace::new()?;
        namespace.ip(&["link add switch type bridge".into(), "link set switch up".into()])?;
        Ok(Self { namespace })
    }

    fn plug(
        &self,
        port: &str,
        machine: &Namespace,
        interface: &str,
        address: Ipv4Addr,
        mac: Option<[u8; 6]>,
    ) -> Result<(), Trouble> {
        let mac = mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
        self.namespace.ip(&[
            format!("link add {port} type veth peer name {interface}{mac} netns {}", machine.path()),
            format!("link set {port} master switch up"),
        ])?;
        machine.ip(&[format!("addr add {address}/16 dev {interface}"), format!("link set {interface} up")])
    }
}
