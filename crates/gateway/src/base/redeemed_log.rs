//! The tickets whose visitors have been answered, kept so that they stay redeemed if the process is killed.
//!
//! A ticket is noted before the first byte of its answer goes to the visitor, with one write(2) of 32 bytes
//! to a file in shared memory (`/dev/shm`): it outlives the process and there is no disk to wait for. So a
//! visitor who was answered cannot enter again after `kill -9`, and one whose answer had not begun keeps the
//! ticket. Between the note and the answer lies a moment, in which the process may be killed. So the visitors
//! of the last tenth of a second are in doubt: if they show the ticket again they keep the turn, with another
//! ticket. A clean stop saves the set in the state directory and removes the files.
//!
//! The log is bounded: a segment takes notes for a minute, and is removed when all its tickets are too old to
//! be shown. That is capacity x (grace + a minute or two) x 32 bytes.
//!
//! Where there is no `/dev/shm`, or it did not outlive the process (the machine or the container was started
//! anew), `room.after_restart_accept` decides about tickets whose turn had come.
//!
//! Rejected: a file in the state directory (a worker would wait for its disk); a shared mapping (a full file
//! system ends the process, and nothing is gained at some thousand notes a second); saving the set once a
//! second (the last second's tickets would be good again, and the set of a large site is megabytes).

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tidegate_core::room::{Claim, RedeemedEarlier};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::Timestamp;

use crate::base::state_dir::StateDir;

const SHARED_MEMORY: &str = "/dev/shm";
/// As long as an entry, so that no entry lies on two pages.
const MAGIC: &[u8; ENTRY] = b"TIDEGATE: redeemed tickets, v. 1";
const ENTRY: usize = 32;
/// Time within which an answer has followed its note, also on a busy machine.
const DOUBT_US: u64 = 100_000;
/// Instead of the time of the note: of an entry that was in doubt before.
const IN_DOUBT: u64 = u64::MAX;
const SEGMENT: Duration = Duration::from_secs(60);
/// Far more than can be redeemed in a minute.
const MAX_SEGMENT_BYTES: u64 = 256 << 20;
/// Points to the state directory: a log whose state directory is gone is removed.
const OWNER: &str = "state";

/// `slot second | nonce | time of the note in µs, 0 or [`IN_DOUBT`] | 0`, 64 bits each, little-endian.
#[derive(Clone, Copy)]
struct Entry {
    second: u64,
    nonce: u64,
    noted_us: u64,
}

struct Segment {
    file: File,
    path: PathBuf,
    /// The latest slot second in it.
    newest: AtomicU64,
}

pub struct RedeemedLog {
    /// `None`: nothing is kept.
    dir: Option<PathBuf>,
    open: ArcSwapOption<Segment>,
    rotation: Mutex<Rotation>,
    /// Since the last kill.
    in_doubt: HashSet<u64>,
    has_failed: AtomicBool,
}

#[derive(Default)]
struct Rotation {
    began: Timestamp,
    made: u64,
    full: Vec<Arc<Segment>>,
}

impl RedeemedLog {
    /// Opens the log of this state directory. Returns the tickets that earlier processes have redeemed, if
    /// they are known.
    pub fn open(state: &StateDir, now: Timestamp) -> (Self, Option<RedeemedEarlier>) {
        Self::open_in(Path::new(SHARED_MEMORY), state, now)
    }

    fn open_in(memory: &Path, state: &StateDir, now: Timestamp) -> (Self, Option<RedeemedEarlier>) {
        let saved = saved(state);
        match Self::begin(memory, state, saved.as_deref(), now) {
            Ok(opened) => opened,
            Err(e) => {
                tracing::warn!(
                    error = %e,
                    "no log of redeemed tickets: after a kill, room.after_restart_accept decides about them"
                );
                // Its tickets are known now; after a kill it would pass for all that were redeemed.
                let _ = state.remove_redeemed();
                (Self::without(), saved.as_deref().map(known))
            }
        }
    }

    fn without() -> Self {
        Self {
            dir: None,
            open: ArcSwapOption::empty(),
            rotation: Mutex::default(),
            in_doubt: HashSet::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    fn begin(
        memory: &Path,
        state: &StateDir,
        saved: Option<&[Entry]>,
        now: Timestamp,
    ) -> io::Result<(Self, Option<RedeemedEarlier>)> {
        let owner = fs::canonicalize(state.path())?;
        // SAFETY: geteuid has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let ours = format!("tidegate-{user}-");
        remove_ownerless(memory, &ours);
        let hash = Sha256::digest(owner.as_os_str().as_encoded_bytes());
        let name: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = memory.join(format!("{ours}{name}"));
        let was_there = match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => true,
            made => made.map(|()| false)?,
        };
        // Others may write to the directory above: what lies there may be theirs.
        let found = fs::symlink_metadata(&dir)?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("{} is not a directory of this user", dir.display())));
        }
        if !was_there {
            symlink(&owner, dir.join(OWNER))?;
        }
        let (mut redeemed, mut old, mut made) = (saved.unwrap_or_default().to_vec(), Vec::new(), 0);
        for entry in fs::read_dir(&dir)?.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else {
                continue;
            };
            made = made.max(number.saturating_add(1));
            let mut bytes = Vec::new();
            File::open(entry.path())?.take(MAX_SEGMENT_BYTES).read_to_end(&mut bytes)?;
            redeemed.extend(entries(&bytes).unwrap_or_default());
            old.push(entry.path());
        }
        settle(&mut redeemed);
        let earlier = known(&redeemed);
        let log = Self { dir: Some(dir), in_doubt: earlier.in_doubt.clone(), ..Self::without() };
        *log.rotation.lock() = Rotation { began: now, made, full: Vec::new() };
        // In the new segment before the old ones go: a kill between the two loses nothing.
        log.next_segment(&redeemed)?;
        for path in old {
            fs::remove_file(path)?;
        }
        state.remove_redeemed()?;
        let is_known = was_there || saved.is_some();
        Ok((log, is_known.then_some(earlier)))
    }

    fn next_segment(&self, begin_with: &[Entry]) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let mut rotation = self.rotation.lock();
        let path = dir.join(rotation.made.to_string());
        rotation.made += 1;
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&to_bytes(begin_with))?;
        let newest = begin_with.iter().map(|entry| entry.second).max().unwrap_or_default();
        let segment = Segment { file, path, newest: newest.into() };
        rotation.full.extend(self.open.swap(Some(Arc::new(segment))));
        Ok(())
    }

    /// Before the ticket's visitor gets an answer.
    pub fn note(&self, ticket: &Ticket, now: Timestamp) {
        let (second, noted_us) = (ticket.due().second(), now.as_micros());
        self.append(Entry { second, nonce: ticket.nonce, noted_us });
    }

    /// Before another tokencheck is told that it may let the ticket's visitor in. That one knows by itself
    /// whether the visitor was answered, so this process never doubts it.
    pub fn note_granted(&self, claim: &Claim) {
        self.append(Entry { second: claim.due.second(), nonce: claim.nonce, noted_us: 0 });
    }

    fn append(&self, entry: Entry) {
        let open = self.open.load();
        let Some(segment) = &*open else { return };
        segment.newest.fetch_max(entry.second, Ordering::Relaxed);
        self.report((&segment.file).write_all(&entry.to_bytes()));
    }

    /// On the control thread, now and then: begins a segment if it is time, and removes those whose tickets
    /// are all older than the second `oldest_valid`.
    pub fn rotate(&self, oldest_valid: u64, now: Timestamp) {
        if self.dir.is_none() {
            return;
        }
        let mut rotation = self.rotation.lock();
        rotation.full.retain(|segment| {
            let is_needed = segment.newest.load(Ordering::Relaxed) >= oldest_valid;
            if !is_needed {
                self.report(fs::remove_file(&segment.path));
            }
            is_needed
        });
        let is_time = now.since(rotation.began) >= SEGMENT;
        if is_time {
            rotation.began = now;
        }
        drop(rotation);
        if is_time {
            self.report(self.next_segment(&[]));
        }
    }

    /// The content of [`StateFile::Redeemed`](crate::base::state_dir::StateFile::Redeemed).
    pub fn to_save(&self, redeemed: &[(u64, u64)]) -> Vec<u8> {
        let noted_us = |nonce: &u64| if self.in_doubt.contains(nonce) { IN_DOUBT } else { 0 };
        let entry = |(second, nonce): &(u64, u64)| Entry {
            second: *second,
            nonce: *nonce,
            noted_us: noted_us(nonce),
        };
        to_bytes(&redeemed.iter().map(entry).collect::<Vec<_>>())
    }

    /// After a clean stop, when the set is saved elsewhere. A process that has begun meanwhile keeps its own.
    pub fn remove(&self) {
        let Some(dir) = &self.dir else { return };
        let mut segments = std::mem::take(&mut self.rotation.lock().full);
        segments.extend(self.open.swap(None));
        for segment in segments {
            self.report(fs::remove_file(&segment.path));
        }
        if fs::read_dir(dir).is_ok_and(|left| left.flatten().all(|entry| entry.file_name() == OWNER)) {
            self.report(fs::remove_dir_all(dir));
        }
    }

    /// Says once that notes are lost.
    fn report(&self, done: io::Result<()>) {
        if let Err(e) = done
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(error = %e, "the log of redeemed tickets cannot be kept: a kill may forget some");
        }
    }
}

fn saved(state: &StateDir) -> Option<Vec<Entry>> {
    let bytes = match state.redeemed() {
        Ok(bytes) => bytes?,
        Err(e) => {
            tracing::warn!(error = %e, "the redeemed tickets of the last stop cannot be read");
            return None;
        }
    };
    let saved = entries(&bytes);
    if saved.is_none() {
        tracing::warn!(
            "the redeemed tickets of the last stop are not usable: expected a file that begins with {}",
            MAGIC.escape_ascii()
        );
    }
    saved
}

/// Logs of state directories that are gone: tests, and gates that were removed.
fn remove_ownerless(memory: &Path, ours: &str) {
    for entry in fs::read_dir(memory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(ours));
        if is_ours && fs::read_link(entry.path().join(OWNER)).is_ok_and(|owner| !owner.exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Entry {
    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        for (at, word) in
            bytes.as_chunks_mut::<8>().0.iter_mut().zip([self.second, self.nonce, self.noted_us])
        {
            *at = word.to_le_bytes();
        }
        bytes
    }
}

fn to_bytes(redeemed: &[Entry]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(redeemed.iter().flat_map(|entry| entry.to_bytes()));
    bytes
}

/// Marks the entries in doubt, and those that are not.
fn settle(entries: &mut [Entry]) {
    let times = entries.iter().map(|entry| entry.noted_us).filter(|us| *us != IN_DOUBT);
    let last_us = times.max().unwrap_or_default();
    for entry in entries {
        let is_in_doubt = entry.noted_us > last_us.saturating_sub(DOUBT_US).max(1);
        entry.noted_us = if is_in_doubt { IN_DOUBT } else { 0 };
    }
}

fn known(entries: &[Entry]) -> RedeemedEarlier {
    let in_doubt = entries.iter().filter(|entry| entry.noted_us == IN_DOUBT);
    RedeemedEarlier {
        redeemed: entries.iter().map(|entry| (entry.second, entry.nonce)).collect(),
        in_doubt: in_doubt.map(|entry| entry.nonce).collect(),
    }
}

/// All whole entries; `None`: not a log.
fn entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (words, _) = bytes.strip_prefix(MAGIC)?.as_chunks::<8>();
    let (entries, _) = words.as_chunks::<4>();
    let entry = |words: &[[u8; 8]; 4]| {
        let [second, nonce, noted_us, _] = words.map(u64::from_le_bytes);
        Entry { second, nonce, noted_us }
    };
    Some(entries.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::state_dir::StateFile;
    use tidegate_core::units::{ClassId, Cost};

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Shared memory and a state directory of the test's own; removed when dropped.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> (Self, StateDir) {
            let path = std::env::temp_dir().join(format!("tidegate-redeemed-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("shm")).unwrap();
            let state = StateDir::open(Some(&path.join("state")), 1).unwrap();
            (Self(path), state)
        }

        fn memory(&self) -> PathBuf {
            self.0.join("shm")
        }

        fn open(&self, state: &StateDir) -> (RedeemedLog, Option<Vec<(u64, u64)>>) {
            let (log, known) = RedeemedLog::open_in(&self.memory(), state, NOW);
            (
                log,
                known.map(|mut known| {
                    known.redeemed.sort_unstable();
                    known.redeemed
                }),
            )
        }

        /// Files of all logs.
        fn files(&self) -> usize {
            let logs = fs::read_dir(self.memory()).unwrap().flatten();
            logs.map(|log| fs::read_dir(log.path()).unwrap().count()).sum()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn ticket(due_s: u64, nonce: u64) -> Ticket {
        let issued = Timestamp::from_secs(due_s);
        Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait: Duration::ZERO, arrived: issued, nonce }
    }

    #[test]
    fn tickets_stay_redeemed_when_the_process_is_killed_again_and_again() {
        let (place, state) = Place::new("kill");
        let (log, known) = place.open(&state);
        assert_eq!(known, None, "nothing is known of an earlier process");
        log.note(&ticket(7, 1), NOW);
        for nonce in 2..=5 {
            // Dropping it does nothing: it is as if the process had been killed.
            let (log, known) = place.open(&state);
            assert_eq!(known, Some((1..nonce).map(|nonce| (7, nonce)).collect()));
            log.note(&ticket(7, nonce), NOW);
        }
        assert_eq!(place.files(), 2, "one segment and the link");
    }

    #[test]
    fn a_clean_stop_leaves_one_file_in_the_state_directory() {
        let (place, state) = Place::new("stop");
        let (log, _) = place.open(&state);
        log.note(&ticket(7, 1), NOW);
        state.save(StateFile::Redeemed, &log.to_save(&[(7, 1), (8, 2)])).unwrap();
        log.remove();
        assert_eq!(fs::read_dir(place.memory()).unwrap().count(), 0);
        let (log, known) = place.open(&state);
        assert_eq!(known, Some(vec![(7, 1), (8, 2)]));
        assert_eq!(state.redeemed().unwrap(), None, "they are in the log now");
        drop(log);
        assert_eq!(place.open(&state).1, Some(vec![(7, 1), (8, 2)]), "after a kill too");
    }

    #[test]
    fn the_log_is_bounded() {
        let (place, state) = Place::new("bound");
        let (log, _) = place.open(&state);
        let started = NOW.second();
        for minute in 0..100 {
            let now = NOW + minute * SEGMENT;
            (0..10).for_each(|n| log.note(&ticket(now.second(), n), NOW));
            log.rotate(now.second().saturating_sub(60).max(started), now);
            assert!(place.files() <= 5, "{}", place.files());
        }
        let (_, known) = place.open(&state);
        let oldest = known.unwrap()[0].0;
        assert!(oldest <= (NOW + 98 * SEGMENT).second(), "tickets that are still good are known");
    }

    #[test]
    fn damage_and_strangers_are_refused() {
        let (place, state) = Place::new("damage");
        state.save(StateFile::Redeemed, b"something else").unwrap();
        let (log, known) = place.open(&state);
        assert_eq!(known, None);
        // A directory that others may read.
        let dir = fs::read_dir(place.memory()).unwrap().flatten().next().unwrap().path();
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        state.save(StateFile::Redeemed, &log.to_save(&[(7, 1)])).unwrap();
        let (log, known) = place.open(&state);
        assert_eq!(known, Some(vec![(7, 1)]), "what was saved is used");
        log.note(&ticket(7, 2), NOW);
        assert_eq!(place.open(&state).1, None, "without a log nothing is known after a kill");
    }

    #[test]
    fn the_last_ones_before_a_kill_are_in_doubt_until_they_are_forgotten() {
        let (place, state) = Place::new("doubt");
        let open = || RedeemedLog::open_in(&place.memory(), &state, NOW);
        let (log, _) = open();
        for (nonce, ms) in [(1, 0), (2, 900), (3, 950), (4, 1_000)] {
            log.note(&ticket(7, nonce), NOW + Duration::from_millis(ms));
        }
        let in_doubt = |known: Option<RedeemedEarlier>| {
            let mut nonces: Vec<u64> = known.expect("a log").in_doubt.into_iter().collect();
            nonces.sort_unstable();
            nonces
        };
        let (log, known) = open();
        assert_eq!(in_doubt(known), [3, 4]);
        log.note(&ticket(7, 5), NOW + Duration::from_secs(9));
        let (log, known) = open();
        assert_eq!(in_doubt(known), [3, 4, 5], "after a second kill too");
        state.save(StateFile::Redeemed, &log.to_save(&[(7, 1), (7, 4)])).unwrap();
        log.remove();
        assert_eq!(in_doubt(open().1), [4], "and after a clean stop");
    }

    #[test]
    fn logs_of_removed_gates_go() {
        let (place, state) = Place::new("gone");
        drop(place.open(&state));
        fs::remove_dir_all(state.path()).unwrap();
        let other = StateDir::open(Some(&place.0.join("other")), 1).unwrap();
        drop(place.open(&other));
        assert_eq!(fs::read_dir(place.memory()).unwrap().count(), 1);
    }
}
