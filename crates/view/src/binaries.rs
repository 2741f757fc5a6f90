//! Names of binaries: what is shown of their paths, and what is the kernel's or a JIT compiler's.

use profile::{Language, Location, Profile};

/// The lowest address of the kernel's half on x86-64 and AArch64.
pub(super) const KERNEL_START: u64 = 0xffff_0000_0000_0000;

/// The mappings of a profile that are the kernel's.
pub(super) struct KernelMappings(Vec<bool>);

impl KernelMappings {
    pub(super) fn new(profile: &Profile) -> KernelMappings {
        KernelMappings(profile.mappings.iter().map(|m| is_kernel(profile.str(m.file))).collect())
    }

    /// True for code of the kernel: by its mapping, or by its address if it has none.
    pub(super) fn has(&self, location: &Location) -> bool {
        let by_address = || location.address >= KERNEL_START;
        location.mapping.map_or_else(by_address, |m| self.0[m.0 as usize])
    }
}

/// The name of run-time code: each process has its own files of it, but it is one binary.
const RUN_TIME: &str = "[JIT]";

/// True for the mapping names of kernel text: `[kernel.kallsyms]`, `vmlinux`, modules.
pub fn is_kernel(file: &str) -> bool {
    file.starts_with("[kernel")
        || file.starts_with("[guest.kernel")
        || file.starts_with("/proc/kcore")
        || [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().any(|e| file.ends_with(e))
        || base_name(file).starts_with("vmlinux")
        || is_module(file)
}

/// True for `[ext4]`, and `[bpf]` for BPF programs; but user code has names in brackets, too.
fn is_module(file: &str) -> bool {
    const USER: &[&str] = &[
        "vdso", "vsyscall", "vvar", "vectors", "heap", "stack", "uprobes", "unknown", "anon",
        "jit", "JIT",
    ];
    let name = file.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
    let is_word = |n: &&str| n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let is_language = Language::ALL.iter().any(|language| language.mapping() == file);
    !is_language
        && name.filter(is_word).is_some_and(|name| !name.is_empty() && !USER.contains(&name))
}

/// The name that is shown of a path: its last part; `[JIT]` of run-time code. Names such as
/// `[vdso]` are kept.
pub fn base_name(path: &str) -> &str {
    if is_run_time(path) { RUN_TIME } else { last_part(path) }
}

fn last_part(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    match path.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name,
        _ => path,
    }
}

/// True for the files of run-time code: perf maps (`perf-PID.map`) and jitdumps (`jit-PID.dump`).
pub fn is_run_time(path: &str) -> bool {
    let name = last_part(path);
    let is_file = |before: &str, after: &str| {
        let pid = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
    };
    // The last two are names in profiles that were converted from those of perf.
    is_file("perf-", ".map")
        || is_file("jit-", ".dump")
        || is_file("[JIT] tid ", "")
        || path == RUN_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_binaries_are_recognized() {
        for name in [
            "[kernel.kallsyms]",
            "/boot/vmlinux-6.1",
            "/lib/modules/6.1/ext4.ko.xz",
            "[ext4]",
            "[bpf]",
        ] {
            assert!(is_kernel(name), "{name}");
        }
        assert!(!is_kernel("/usr/lib/libc.so.6") && !is_kernel("[python]"));
        assert_eq!(base_name("/a/b (deleted)"), "b");
        assert_eq!(base_name("[vdso]"), "[vdso]");
    }

    #[test]
    fn files_of_run_time_code_have_one_name() {
        for path in [
            "/tmp/perf-6444.map",
            "/proc/9/root/tmp/perf-1.map",
            "perf-1.map (deleted)",
            "/home/a/.debug/jit/llvm-IR-jit-1/jit-12.dump",
            "[JIT] tid 123",
            "[JIT]",
        ] {
            assert_eq!((base_name(path), is_run_time(path)), ("[JIT]", true), "{path}");
            assert!(!is_kernel(path), "{path}");
        }
        for path in ["/tmp/perf-x.map", "perf-.map", "jit-1.dump.so", "/perf-1.map/libx.so", "anon"]
        {
            assert_eq!((base_name(path), is_run_time(path)), (last_part(path), false), "{path}");
        }
    }
}
