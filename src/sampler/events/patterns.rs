//! Patterns of tracepoints: `sched:*`, `syscalls:sys_enter_*at:u`.

use sys::Error;

use crate::sampler::catalogue::matches;
use crate::sampler::permissions::{Wanted, refused};
use crate::sampler::probes::is_probe;
use crate::sampler::tracefs;

/// Most tracepoints that a pattern selects. Each is opened on each CPU, and its column is in each
/// sample.
const MOST: usize = 100;

/// True for a pattern of tracepoints.
pub fn is_pattern(event: &str) -> bool {
    event.contains(['*', '?']) && event.contains(':') && !event.contains('/') && !is_probe(event)
}

/// The tracepoints that match a pattern, with its modifiers.
///
/// # Errors
///
/// None matches, or too many; tracefs cannot be read.
pub fn tracepoints(pattern: &str) -> Result<Vec<String>, Error> {
    let all = tracefs::tracepoints().map_err(|e| refused(&e, Wanted::Tracefs(pattern.into())))?;
    select(pattern, &all)
}

fn select(pattern: &str, all: &[String]) -> Result<Vec<String>, Error> {
    let mut parts = pattern.splitn(3, ':');
    let (system, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let modifiers = parts.next().map(|modifiers| format!(":{modifiers}")).unwrap_or_default();
    let wanted = format!("{system}:{name}");
    let is_it = |tracepoint: &&String| matches(wanted.as_bytes(), tracepoint.as_bytes());
    let names: Vec<String> =
        all.iter().filter(is_it).map(|name| format!("{name}{modifiers}")).collect();
    match names.len() {
        0 => Err(Error::usage(format!(
            "no tracepoint matches '{pattern}'; 'prof list tracepoint' lists all"
        ))),
        n if n > MOST => Err(Error::usage(format!(
            "{n} tracepoints match '{pattern}', and prof records {MOST} of a pattern at most; \
             prof list '{wanted}' lists them"
        ))),
        _ => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tracepoints_are_patterns() {
        assert!(is_pattern("sched:*") && is_pattern("*:*") && is_pattern("a:b?:u"));
        for other in ["*", "cycles", "cpu/*/", "probe:*", "kprobe:do_*", "sched:sched_switch"] {
            assert!(!is_pattern(other), "{other}");
        }
    }

    #[test]
    fn a_pattern_selects_its_matches_up_to_a_limit() {
        let names = |count: usize| -> Vec<String> {
            (0..count).map(|n| format!("sys:enter_{n}")).chain(["sched:x".to_owned()]).collect()
        };
        let all = names(MOST);
        assert_eq!(select("sys:*", &all).unwrap().len(), MOST);
        assert_eq!(select("sys:enter_7?", &all).unwrap().len(), 10);
        assert_eq!(select("s*:x:u", &all).unwrap(), ["sched:x:u"]);
        let line = select("sys:*", &names(MOST + 1)).unwrap_err().to_string();
        assert!(line.starts_with("101 tracepoints match 'sys:*'"), "{line}");
        let line = select("sys:leave*", &all).unwrap_err().to_string();
        assert!(line.contains("no tracepoint matches") && line.contains("prof list"), "{line}");
    }
}
