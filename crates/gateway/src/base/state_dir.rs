//! What survives a restart, in one directory: the key ring, the promises, what was learned and tuned, and the
//! redeemed tickets of a clean stop (those of a process that was killed: `redeemed_log.rs`).
//!
//! Tickets are stateless: a killed gateway that restarts with the same keys loses no visitor, and one that
//! knows what was promised does not overbook. These files are small: a line per key, and 8 bytes for every
//! second of the schedule, written once a second to a temporary file and renamed. A crash of the process
//! loses at most the last second. There is no fsync, as a crash of the machine empties the waiting room.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

const KEYS: &str = "keys";
const PROMISES: &str = "promises";
const LEARNED: &str = "learned.json";
const REDEEMED: &str = "redeemed";
const ACME: &str = "acme.json";
const MEMBER: &str = "tokencheck";
/// Far more than a day's schedule: a larger file is not ours.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How long the end of the process waits for the last promises.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Opens `path`, or the default for this user and port; creates it if needed.
    pub fn open(path: Option<&Path>, port: u16) -> io::Result<Self> {
        let path = Self::path_for(path, port);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("state directory {}: {e}", path.display())))?;
        Ok(Self { path })
    }

    /// The directory that [`StateDir::open`] opens.
    pub fn path_for(path: Option<&Path>, port: u16) -> PathBuf {
        path.map_or_else(|| default_path(port), Path::to_path_buf)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key ring's lines (`ID:64 hex digits`), or those that `make` makes on the first start.
    pub fn keys(&self, make: impl FnOnce() -> io::Result<String>) -> io::Result<Vec<String>> {
        if let Some(bytes) = self.read(KEYS)? {
            let lines: Vec<String> = String::from_utf8_lossy(&bytes)
                .lines()
                .map(str::to_owned)
                .filter(|l| !l.is_empty())
                .collect();
            if !lines.is_empty() {
                return Ok(lines);
            }
        }
        let line = make()?;
        self.write(KEYS, format!("{line}\n").as_bytes())?;
        Ok(vec![line])
    }

    pub fn promises(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(PROMISES)
    }

    /// What was learned and tuned.
    pub fn learned(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(LEARNED)
    }

    /// The tickets that were redeemed before the last clean stop.
    pub fn redeemed(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(REDEEMED)
    }

    /// Which of several tokenchecks keeps its state here.
    pub fn member(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(MEMBER)
    }

    pub fn save_member(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(MEMBER, bytes)
    }

    /// What the gate has from an authority by ACME: account, certificate, key.
    pub fn acme(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(ACME)
    }

    pub fn save_acme(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(ACME, bytes)
    }

    pub fn save(&self, file: StateFile, bytes: &[u8]) -> io::Result<()> {
        self.write(file.name(), bytes)
    }

    /// Once they are kept elsewhere.
    pub fn remove_redeemed(&self) -> io::Result<()> {
        match fs::remove_file(self.path.join(REDEEMED)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        // A file left there by a crash or by somebody else is replaced, not opened: in a directory that
        // others may write to, a link could lead to another file of the user, and a file that others have
        // open would show them the keys.
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        fs::rename(new, self.path.join(name))
    }
}

/// A file that is written again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateFile {
    Promises,
    Learned,
    Redeemed,
}

impl StateFile {
    const ALL: [Self; 3] = [Self::Promises, Self::Learned, Self::Redeemed];

    fn name(self) -> &'static str {
        match self {
            Self::Promises => PROMISES,
            Self::Learned => LEARNED,
            Self::Redeemed => REDEEMED,
        }
    }
}

/// Saves state on a thread of its own, so that the tick does not wait for the disk. A slow disk gets only
/// the newest.
pub struct Saver {
    mailbox: Arc<Mailbox>,
    /// Closed when the thread has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

#[derive(Default)]
struct Mailbox {
    next: Mutex<Next>,
    changed: Condvar,
    /// Since the thread was told to end.
    has_saved_all: AtomicBool,
}

#[derive(Default)]
struct Next {
    contents: [Option<Vec<u8>>; StateFile::ALL.len()],
    is_closed: bool,
}

impl Saver {
    /// Starts the thread. If it cannot be started, nothing is saved, and the log says so.
    pub fn start(dir: StateDir) -> Self {
        let mailbox = Arc::<Mailbox>::default();
        let (end, ended) = sync_channel::<()>(1);
        let inbox = mailbox.clone();
        let thread = std::thread::Builder::new().name("state".into()).spawn(move || {
            while let Some((file, bytes)) = inbox.next() {
                let saved = dir.save(file, &bytes);
                inbox.has_saved_all.fetch_and(saved.is_ok(), Ordering::Relaxed);
                if let Err(e) = saved {
                    tracing::warn!(error = %e, file = file.name(), "state cannot be saved");
                }
            }
            drop(end);
        });
        if let Err(e) = thread {
            tracing::warn!(error = %e, "no thread to save state: a restart will not know it");
        }
        Self { mailbox, ended: Mutex::new(Some(ended)) }
    }

    pub fn save(&self, file: StateFile, bytes: Vec<u8>) {
        self.mailbox.next.lock().contents[file as usize] = Some(bytes);
        self.mailbox.changed.notify_one();
    }

    /// Saves these as the last ones, and waits for that, for a few seconds at most. Returns whether all of
    /// them are saved.
    pub fn close(&self, last: impl IntoIterator<Item = (StateFile, Vec<u8>)>) -> bool {
        let mut next = self.mailbox.next.lock();
        for (file, bytes) in last {
            next.contents[file as usize] = Some(bytes);
        }
        self.mailbox.has_saved_all.store(true, Ordering::Relaxed);
        next.is_closed = true;
        drop(next);
        self.mailbox.changed.notify_one();
        // Nothing is ever sent; the channel closes when the thread ends.
        let ended = self.ended.lock().take();
        let has_ended = ended
            .is_some_and(|ended| ended.recv_timeout(CLOSE_TIMEOUT) == Err(RecvTimeoutError::Disconnected));
        has_ended && self.mailbox.has_saved_all.load(Ordering::Relaxed)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.mailbox.next.lock().is_closed = true;
        self.mailbox.changed.notify_one();
    }
}

impl Mailbox {
    /// Waits for what is to be saved next; `None`: closed.
    fn next(&self) -> Option<(StateFile, Vec<u8>)> {
        let mut next = self.next.lock();
        self.changed
            .wait_while(&mut next, |next| next.contents.iter().all(Option::is_none) && !next.is_closed);
        StateFile::ALL.into_iter().find_map(|file| Some((file, next.contents[file as usize].take()?)))
    }
}

/// By port, so that two gates of one user do not share promises.
fn default_path(port: u16) -> PathBuf {
    let base = std::env::var_os("STATE_DIRECTORY")
        .or_else(|| std::env::var_os("XDG_STATE_HOME").map(|d| Path::new(&d).join("tidegate").into()))
        .map(PathBuf::from)
        .or_else(|| {
            let home = PathBuf::from(std::env::var_os("HOME")?);
            // SAFETY: geteuid has no preconditions and cannot fail.
            let root = unsafe { libc::geteuid() } == 0;
            (!root).then(|| home.join(".local/state/tidegate"))
        })
        .unwrap_or_else(|| PathBuf::from("/var/lib/tidegate"));
    base.join(port.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tidegate-state-{}-{name}", std::process::id()))
    }

    #[test]
    fn keys_are_made_once_and_private() {
        let path = scratch("keys");
        let dir = StateDir::open(Some(&path), 1).unwrap();
        assert_eq!(dir.keys(|| Ok("7:aa".into())).unwrap(), ["7:aa"]);
        assert_eq!(dir.keys(|| unreachable!()).unwrap(), ["7:aa"]);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(path.join(KEYS)).unwrap());
        assert_eq!(mode & 0o077, 0);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn nothing_is_written_through_a_link_or_into_an_open_file() {
        let path = scratch("link");
        let dir = StateDir::open(Some(&path), 1).unwrap();
        let (precious, new) = (path.join("precious"), path.join(format!("{PROMISES}.new")));
        fs::write(&precious, b"keep").unwrap();
        std::os::unix::fs::symlink(&precious, &new).unwrap();
        dir.save(StateFile::Promises, b"abc").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"keep");
        fs::write(&new, b"theirs").unwrap();
        let mut theirs = File::open(&new).unwrap();
        dir.save(StateFile::Promises, b"abc").unwrap();
        let mut seen = String::new();
        theirs.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "theirs");
        assert_eq!(dir.promises().unwrap().unwrap(), b"abc");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_disk_that_hangs_delays_nobody_and_gets_the_newest_promises() {
        let path = scratch("saver");
        let dir = StateDir::open(Some(&path), 1).unwrap();
        // A directory in the way of the temporary file: every attempt fails until it is gone.
        let in_the_way = path.join(format!("{PROMISES}.new"));
        fs::create_dir(&in_the_way).unwrap();
        let saver = Saver::start(dir.clone());
        (0..100u8).for_each(|n| saver.save(StateFile::Promises, vec![n]));
        fs::remove_dir(&in_the_way).unwrap();
        let last = [(StateFile::Promises, b"last".to_vec()), (StateFile::Learned, b"{}".to_vec())];
        assert!(saver.close(last));
        assert_eq!(dir.learned().unwrap().unwrap(), b"{}");
        assert_eq!(dir.promises().unwrap().unwrap(), b"last");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn promises_come_back() {
        let path = scratch("promises");
        let dir = StateDir::open(Some(&path), 1).unwrap();
        assert_eq!(dir.promises().unwrap(), None);
        dir.save(StateFile::Promises, b"abc").unwrap();
        dir.save(StateFile::Promises, b"de").unwrap();
        assert_eq!(dir.promises().unwrap().unwrap(), b"de");
        fs::remove_dir_all(path).unwrap();
    }
}
