//! Profile formats older than `profile.proto`: identified, but not read. pprof converts them.

/// Bytes of a file that identify its format.
pub(super) const HEAD: usize = 512;

/// Probable format of a file, by its first bytes, and how to convert it.
pub(super) fn guess(head: &[u8]) -> Option<String> {
    let (what, needs_program) = match cpu(head) {
        Some(what) => (what, true),
        None => text(head)?,
    };
    let program = if needs_program { "PROGRAM " } else { "" };
    let names = if needs_program { " (PROGRAM: the binary, for its names)" } else { "" };
    Some(format!(
        "it is {what}; convert it with go tool pprof -proto {program}FILE > out.pb.gz{names}"
    ))
}

/// The binary format of CPU profiles: words of the machine that wrote them, of which the first
/// five are 0, 3 (words that follow), the version, the period, 0.
fn cpu(head: &[u8]) -> Option<&'static str> {
    type Parse = fn(&[u8]) -> u64;
    let little = |b: &[u8]| b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let big = |b: &[u8]| b.iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
    for (size, parse) in
        [(4, little as Parse), (8, little as Parse), (4, big as Parse), (8, big as Parse)]
    {
        let words: Vec<u64> = head.chunks_exact(size).take(5).map(parse).collect();
        match words[..] {
            [0, 3, 0, period, 0] if period > 0 => {
                return Some("a CPU profile in gperftools' binary format");
            }
            [0, 3, 1, period, 0] if period > 0 => {
                return Some("a CPU profile in the old format for Java");
            }
            _ => {}
        }
    }
    None
}

/// The text formats: a description, and true if symbols need the program.
fn text(head: &[u8]) -> Option<(&'static str, bool)> {
    let text = match str::from_utf8(head) {
        Ok(text) => text,
        Err(e) => str::from_utf8(&head[..e.valid_up_to()]).ok()?,
    };
    let mut lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let first = lines.next()?;
    let java = text.lines().take(8).any(|l| l.trim() == "format = java");
    let words: Vec<&str> = first.split_whitespace().collect();
    let kind = |prefix: &str| first.starts_with(prefix);
    Some(match words[..] {
        _ if java => ("a profile in the old text format for Java", false),
        ["heap", "profile:", ..] => match first.split('@').nth(1).map(str::trim) {
            // runtime/pprof prints its sampling rate twice.
            Some(at) if at.starts_with("heap/") => ("a heap profile in Go's debug=1 format", false),
            Some(at) if at.starts_with("growth") => {
                ("a growth profile in gperftools' text format", true)
            }
            Some(at) if at.starts_with("frag") => {
                ("a fragmentation profile in gperftools' text format", true)
            }
            _ => ("a heap profile in gperftools' text format", true),
        },
        [_, "profile:", "total", _] => ("a profile in Go's debug=1 format", false),
        ["goroutine", _, state, ..] if state.starts_with('[') => return None,
        _ if kind("--- mutex:") || kind("--- contention:") => {
            ("a contention profile in Go's debug=1 format", false)
        }
        _ if kind("--- contentionz ") => ("a contention profile in gperftools' text format", true),
        _ if kind("--- threadz ") || kind("--- Thread ") => {
            ("a profile of threads in gperftools' text format", true)
        }
        _ if kind("--- heapz ") => ("a heap profile in gperftools' text format", true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu_profile(version: u64, size: usize, big_endian: bool) -> Vec<u8> {
        let words = [0, 3, version, 10_000, 0, 1, 1, 0x40_1000, 0, 1, 0];
        let word = |n: u64| {
            if big_endian {
                n.to_be_bytes()[8 - size..].to_vec()
            } else {
                n.to_le_bytes()[..size].to_vec()
            }
        };
        words.into_iter().flat_map(word).collect()
    }

    #[test]
    fn cpu_profiles_of_any_machine() {
        for (size, big_endian) in [(4, false), (4, true), (8, false), (8, true)] {
            let message = guess(&cpu_profile(0, size, big_endian)).unwrap();
            assert!(
                message.starts_with("it is a CPU profile in gperftools' binary format"),
                "{message}"
            );
            assert!(message.contains("go tool pprof -proto PROGRAM FILE > out.pb.gz"), "{message}");
            let java = guess(&cpu_profile(1, size, big_endian)).unwrap();
            assert!(java.starts_with("it is a CPU profile in the old format for Java"), "{java}");
            assert_eq!(guess(&cpu_profile(2, size, big_endian)), None);
        }
        assert_eq!(guess(&[0; 100]), None);
        assert_eq!(guess(&cpu_profile(0, 8, false)[..39]), None);
    }

    #[test]
    fn texts_are_named_for_their_writers() {
        let cases = [
            ("heap profile:  1: 2 [ 3: 4] @ heap_v2/524288\n", "heap profile in gperftools'"),
            ("heap profile:  1: 2 [ 3: 4] @ heapprofile\n", "heap profile in gperftools'"),
            ("heap profile:  1: 2 [ 3: 4] @ growthz\n", "growth profile in gperftools'"),
            ("heap profile:  1: 2 [ 3: 4] @ fragmentationz\n", "fragmentation profile"),
            ("heap profile: 1: 2 [3: 4] @ heap/1048576\n", "heap profile in Go's"),
            ("goroutine profile: total 5\n1 @ 0x1 0x2\n", "profile in Go's"),
            ("# a comment\n\nthreadcreate profile: total 7\n", "profile in Go's"),
            ("--- mutex:\ncycles/second=2000\n", "contention profile in Go's"),
            ("--- contention:\ncycles/second=2000\n", "contention profile in Go's"),
            ("--- contentionz 1 ---\n", "contention profile in gperftools'"),
            ("--- contentionz 1 ---\nformat = java\n", "profile in the old text format for Java"),
            ("--- heapz 1 ---\nformat = java\n", "profile in the old text format for Java"),
            ("--- threadz 1 ---\n\n--- Thread 7f (name: main/1) stack: ---\n", "of threads"),
            ("--- Thread 7f (name: main/1) stack: ---\n", "of threads in gperftools'"),
        ];
        for (text, what) in cases {
            let message = guess(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert!(
                message.contains(what) && message.contains("go tool pprof -proto"),
                "{text}: {message}"
            );
        }
        for other in ["main;foo 3\n", "--- a\n+++ b\n", "heap", "", "profile: total 1\n"] {
            assert_eq!(guess(other.as_bytes()), None, "{other}");
        }
    }
}
