//! Debian's nginx as origin, with a configuration made for these tests.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::harness::{TempDir, free_address, wait_for};
use super::http::Client;

/// Size of the big bodies: 1 GiB.
pub const BIG: u64 = 1 << 30;

/// Size of `/part`: some thousand times an answer without a body.
const PART: usize = 512 << 10;

/// A running nginx, killed when dropped. It is a single process, so that killing it kills the replica.
pub struct Nginx {
    child: Child,
    dir: TempDir,
    address: SocketAddr,
}

impl Nginx {
    /// Starts one. `/name` answers with `name`.
    pub fn start(name: &str) -> Self {
        Self::start_with(name, "off")
    }

    /// One that also writes an access log in the combined form, a line at a time.
    pub fn start_logging(name: &str) -> Self {
        Self::start_with(name, "access.log combined")
    }

    /// The access log of [`Nginx::start_logging`].
    pub fn access_log(&self) -> PathBuf {
        self.dir.path().join("access.log")
    }

    fn start_with(name: &str, access_log: &str) -> Self {
        let dir = TempDir::new();
        let address = free_address();
        let root = dir.path().join("www");
        fs::create_dir_all(root.join("upload")).expect("www");
        // The file is sparse and takes no space on the disk.
        fs::File::create(root.join("big")).and_then(|f| f.set_len(BIG)).expect("big file");
        fs::write(root.join("part"), vec![b'x'; PART]).expect("part");
        fs::write(root.join("page"), "a page of the shop\n").expect("page");
        let config = configuration(&dir.path().display().to_string(), address, name, access_log);
        fs::write(dir.path().join("nginx.conf"), config).expect("nginx.conf");
        let child = launch(&dir);
        let nginx = Self { child, dir, address };
        nginx.wait_ready();
        nginx
    }

    fn wait_ready(&self) {
        wait_for("nginx to answer", || Client::connect(self.address).ok()?.get("/name", "").ok());
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file that a PUT to `/upload/NAME` writes.
    pub fn uploaded(&self, name: &str) -> PathBuf {
        self.dir.path().join("www/upload").join(name)
    }

    /// Kills it without a shutdown.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill nginx");
        self.child.wait().expect("wait for nginx");
    }

    /// Starts it again on the same address.
    pub fn restart(&mut self) {
        self.child = launch(&self.dir);
        self.wait_ready();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(dir: &TempDir) -> Child {
    let log = fs::File::create(dir.path().join("nginx.log")).expect("nginx.log");
    Command::new("nginx")
        .arg("-p")
        .arg(dir.path())
        .arg("-e")
        .arg(dir.path().join("error.log"))
        .arg("-c")
        .arg(dir.path().join("nginx.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("nginx.log"))
        .stderr(log)
        .spawn()
        .expect("nginx (Debian: apt-get install nginx-light)")
}

fn configuration(dir: &str, address: SocketAddr, name: &str, access_log: &str) -> String {
    format!(
        "daemon off;
master_process off;
pid {dir}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
    access_log {access_log};
    client_max_body_size 0;
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    keepalive_requests 10000000;
    sendfile on;
    default_type text/plain;
    server {{
        listen {address} backlog=4096;
        root {dir}/www;
        location = /name {{ return 200 \"{name}\"; }}
        location = /connection {{ return 200 \"$connection\"; }}
        location = /fields {{ return 200 \"$http_via|$http_x_forwarded_for|$http_cookie|$args\"; }}
        location = /empty {{ return 204; }}
        location = /unchanged {{ return 304; }}
        location /shop {{ return 200 \"welcome\"; }}
        location /upload/ {{ dav_methods PUT; }}
    }}
}}
"
    )
}
