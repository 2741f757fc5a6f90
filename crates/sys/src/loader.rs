//! Programs that are started through the dynamic linker, as in `/lib64/ld-linux-x86-64.so.2 ./a`:
//! to the kernel, the linker is the program.

/// True if this is the path of a dynamic linker: glibc's, musl's, or that of another system.
pub fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_ld = name.strip_prefix("ld").is_some_and(|rest| rest.starts_with(['-', '.', '6']));
    is_ld && (name.contains(".so.") || name.ends_with(".so"))
}

/// The kernel's name for the program that a process with this executable was started for, if that
/// is a dynamic linker.
pub fn program_of(pid: i32, executable: &str) -> Option<String> {
    if !is_loader(executable) {
        return None;
    }
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(comm_of(program_in(&cmdline)?).to_owned())
}

/// The program in the arguments of a dynamic linker; `None` if it only prints something.
fn program_in(cmdline: &[u8]) -> Option<&str> {
    /// Options of glibc and musl that are followed by a value.
    const WITH_VALUE: [&[u8]; 7] = [
        b"--library-path",
        b"--inhibit-rpath",
        b"--audit",
        b"--preload",
        b"--argv0",
        b"--glibc-hwcaps-prepend",
        b"--glibc-hwcaps-mask",
    ];
    let mut words = cmdline.split(|&byte| byte == 0).skip(1);
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if word == b"--" {
            return words.next().and_then(path);
        } else if !word.starts_with(b"--") {
            return path(word);
        }
    }
    None
}

fn path(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok().filter(|word| !word.is_empty())
}

/// The name that the kernel gives a process that executes the file at `path`.
pub fn comm_of(path: &str) -> &str {
    /// `TASK_COMM_LEN`, without the zero at the end.
    const LONGEST: usize = 15;
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = (0..=LONGEST.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_linkers_are_recognized() {
        for path in [
            "/lib64/ld-linux-x86-64.so.2",
            "/usr/lib/x86_64-linux-gnu/ld-2.31.so",
            "/lib/ld-linux-aarch64.so.1",
            "/lib/ld-musl-x86_64.so.1",
            "/lib64/ld64.so.2",
            "/opt/sys/ld.so.1",
        ] {
            assert!(is_loader(path), "{path}");
        }
        for path in
            ["/usr/bin/ld", "/usr/bin/ld.gold", "/lib/libldap.so.2", "/bin/ldd", "/x/lda.so"]
        {
            assert!(!is_loader(path), "{path}");
        }
    }

    #[test]
    fn the_program_follows_the_options_of_the_linker() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (b"/lib64/ld.so\0./prog\0--x\0", Some("./prog")),
            (b"ld.so\0--library-path\0/a:/b\0/bin/prog\0", Some("/bin/prog")),
            (b"ld.so\0--inhibit-cache\0--argv0\0name\0prog\0", Some("prog")),
            (b"ld-musl.so\0--preload=x.so\0--\0prog\0", Some("prog")),
            (b"ld.so\0--version\0", None),
            (b"", None),
        ];
        for (cmdline, program) in cases {
            assert_eq!(program_in(cmdline), program, "{}", String::from_utf8_lossy(cmdline));
        }
        assert_eq!(comm_of("/a/a-program-with-a-long-name"), "a-program-with-");
    }
}
