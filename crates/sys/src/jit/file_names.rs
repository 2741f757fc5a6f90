//! Names of the files in which JIT compilers describe their code; mappings of such code have these
//! names, too.

/// The number in the path of a jitdump file, `jit-PID.dump`: the PID in the process's own
/// namespace.
pub fn number_of_dump(path: &[u8]) -> Option<u32> {
    let name = path.rsplit(|&b| b == b'/').next()?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let digits = name.strip_prefix(b"jit-")?.strip_suffix(b".dump")?;
    let number = digits.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(digits).ok());
    number??.parse().ok()
}

/// True for the path of a perf map or a jitdump.
pub fn is_compilers_file(path: &str) -> bool {
    number_of_map(path).is_some() || number_of_dump(path.as_bytes()).is_some()
}

/// The number in the path of a perf map, `perf-PID.map`: the PID in the process's own namespace.
pub fn number_of_map(path: &str) -> Option<u32> {
    let digits = path.rsplit('/').next()?.strip_prefix("perf-")?.strip_suffix(".map")?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_compilers_are_recognized_by_their_names() {
        for path in ["/tmp/perf-1.map", "perf-22.map", "/a/jit-7.dump", "jit-7.dump (deleted)"] {
            assert!(is_compilers_file(path), "{path}");
        }
        for path in ["/tmp/perf-.map", "/tmp/perf-1x.map", "jit-.dump", "/a/jit-1.dump.x", ""] {
            assert!(!is_compilers_file(path), "{path}");
        }
        assert_eq!(number_of_map("/x/perf-123.map"), Some(123));
        assert_eq!(number_of_dump(b"/x/jit-123.dump"), Some(123));
        assert_eq!(number_of_dump(b"/x/jit-99999999999.dump"), None);
    }
}
