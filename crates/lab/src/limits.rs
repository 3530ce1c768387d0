//! How many sockets a process of the bench may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, as anything must that holds a connection per request:
/// the usual soft limit of 1,024 is there for programs that call `select`. Returns the limit in force;
/// `None`: there is none.
pub fn raise_open_files() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    // Not allowed: the old limit is in force, and a run that meets it counts the failures as the bench's own.
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.maximum,
        Err(_) => soft,
    }
}
