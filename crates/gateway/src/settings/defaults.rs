use super::*;

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: ([0, 0, 0, 0], 8080).into(),
            admin: ([127, 0, 0, 1], 9090).into(),
            admin_token: String::new(),
            workers: 0,
            backlog: 4096,
        }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            replicas: Vec::new(),
            max_in_flight: 0,
            connect_timeout: secs(3),
            first_byte_timeout: secs(60),
            read_timeout: secs(60),
            idle_timeout: secs(60),
            max_idle: 256,
            retry_budget: 0.2,
            host: String::new(),
            health: Health::default(),
            eject: Eject::default(),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self { path: String::new(), every: secs(2), timeout: secs(1), rise: 2, fall: 3 }
    }
}

impl Default for Eject {
    fn default() -> Self {
        Self { failures: 5, for_: secs(5) }
    }
}

impl Default for Proxy {
    fn default() -> Self {
        Self { trusted: Vec::new(), via: "tidegate".into(), forwarded: true, server_timing: true }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 100_000,
            header_timeout: secs(10),
            idle_timeout: secs(75),
            body_timeout: secs(60),
            request_timeout: Duration::ZERO,
            max_header_bytes: 32 << 10,
            max_headers: 100,
            max_uri_bytes: 8 << 10,
            max_body_bytes: 0,
            drain_timeout: secs(30),
        }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self { estimator: "fixed".into(), rate: 0.0 }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            enabled: true,
            classes: Vec::new(),
            unit: Unit::Request,
            max_wait: secs(30 * 60),
            grace: secs(60),
            tolerance: secs(1),
            burst: Duration::from_millis(200),
            overbook_max: 1.5,
            rise_to_newcomers: false,
            binding: Binding::Cookie,
            after_restart_accept: true,
            status: 503,
            max_form_bytes: 64 << 10,
            template: None,
            logo: None,
            title: String::new(),
            hosts: Vec::new(),
            state_dir: None,
            keys: Vec::new(),
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self { timeout: secs(5 * 60), max_age: secs(60 * 60) }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self { max_length: 10_000, max_wait: secs(30) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, access: AccessLog::Off, access_file: None }
    }
}

impl Default for Class {
    fn default() -> Self {
        Self { name: String::new(), matches: Match::default(), cost: 1.0, priority: 1 }
    }
}
