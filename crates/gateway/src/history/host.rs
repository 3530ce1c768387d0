//! The host's use of processor time and memory, from Linux's `/proc`. On other systems it is not known.

use std::fs;

#[derive(Default)]
pub struct Host {
    last: Option<Cpu>,
}

/// Shares in use; NaN: not known.
pub struct HostUse {
    /// Of processor time, since the previous call.
    pub cpu: f32,
    pub memory: f32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cpu {
    busy: u64,
    all: u64,
}

impl Host {
    pub fn read(&mut self) -> HostUse {
        let cpu = fs::read_to_string("/proc/stat").ok().and_then(|text| cpu(&text));
        let share = match (self.last, cpu) {
            (Some(last), Some(now)) if now.all > last.all => {
                now.busy.saturating_sub(last.busy) as f32 / (now.all - last.all) as f32
            }
            _ => f32::NAN,
        };
        self.last = cpu;
        let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text));
        // Not `min`, which would turn NaN into 1.
        let cpu = if share > 1.0 { 1.0 } else { share };
        HostUse { cpu, memory: memory.unwrap_or(f32::NAN) }
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal (guests are part of
/// user).
fn cpu(text: &str) -> Option<Cpu> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = numbers.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let idle = times.get(3)? + times.get(4).unwrap_or(&0);
    let all: u64 = times.iter().sum();
    Some(Cpu { busy: all - idle, all })
}

fn memory(text: &str) -> Option<f32> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (all, available) = (of("MemTotal:")?, of("MemAvailable:")?);
    (all > 0.0).then(|| (1.0 - available / all).clamp(0.0, 1.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_knows_no_processor_time() {
        assert!(Host::default().read().cpu.is_nan());
    }

    #[test]
    fn proc_files_are_parsed() {
        let stat = "cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1 2 3\n";
        assert_eq!(cpu(stat), Some(Cpu { busy: 30, all: 100 }));
        let info = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   250 kB\n";
        assert_eq!(memory(info), Some(0.75));
        for broken in ["", "cpu", "cpu x", "cpu  1 2", "MemTotal: 0 kB\nMemAvailable: 0 kB"] {
            assert_eq!((cpu(broken), memory(broken)), (None, None), "{broken:?}");
        }
    }
}
