//! Checks whether a library can be preloaded into a program.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

use sys::arch;
use sys::foreign;
use sys::os;

/// Most nested scripts: an interpreter may be a script, too; this is the kernel's limit.
const SCRIPTS: usize = 4;

/// Bytes at the start of a file that contain the headers of every usual program.
const HEADERS: usize = 16 << 10;

/// Reason why the dynamic linker will not preload a library into this command; `None` if it will,
/// as far as is known, or the command does not exist.
pub fn why_not_preloaded(command: &str) -> Option<String> {
    let (path, head) = program(command)?;
    let name = path.display();
    // `ld.so(8)`, secure-execution mode.
    if let Some(rights) = other_rights(&path) {
        return Some(format!("{name} {rights}, and the dynamic linker preloads nothing into it"));
    }
    why_not_linked(&head).map(|why| format!("{name} {why}"))
}

/// The program that runs with other privileges than its caller's when this command is started, and
/// the reason.
pub fn privileged(command: &str) -> Option<String> {
    let (path, _) = program(command)?;
    other_rights(&path).map(|rights| format!("{} {rights}", path.display()))
}

/// The program that runs for a command, and the start of its file.
fn program(command: &str) -> Option<(PathBuf, Vec<u8>)> {
    let mut path = find(command)?;
    for _ in 0..SCRIPTS {
        let head = head(&path)?;
        match interpreter(&head) {
            Some(interpreter) => path = interpreter,
            None => return Some((path, head)),
        }
    }
    None
}

/// The program of a command, as found by the shell.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command));
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|directory| directory.join(command)).find(is_program)
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    foreign::open(path).ok()?.take(HEADERS as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The interpreter in a script's first line.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let word = line.trim_ascii().split(|b| b.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

/// Reason why a program runs with other privileges than its caller's.
fn other_rights(path: &Path) -> Option<&'static str> {
    let about = fs::metadata(path).ok()?;
    let user = os::uid();
    let group = os::gid();
    if about.mode() & 0o4000 != 0 && about.uid() != user {
        return Some("is setuid");
    }
    if about.mode() & 0o2000 != 0 && about.gid() != group {
        return Some("is setgid");
    }
    if user != 0 && os::has_capabilities(path) {
        return Some("has capabilities");
    }
    None
}

fn why_not_linked(head: &[u8]) -> Option<&'static str> {
    if FileHeader32::<LittleEndian>::parse(head).is_ok() {
        return Some("is a 32-bit program, into which prof's library does not fit");
    }
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    if header.e_machine(LittleEndian) != arch::ELF_MACHINE {
        return Some("is a program for another processor");
    }
    let segments = header.program_headers(LittleEndian, head).ok()?;
    let linked = segments.iter().any(|s| s.p_type(LittleEndian) == PT_INTERP);
    (!linked)
        .then_some("is linked statically: it has no dynamic linker that could preload a library")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#! /bin/sh -e\n").unwrap();
        assert_eq!(interpreter(&head(&script).unwrap()), Some(PathBuf::from("/bin/sh")));
        assert_eq!(why_not_preloaded(script.to_str().unwrap()), None);
        assert_eq!(why_not_preloaded("/nonexistent"), None);
        // A script that names itself ends the search.
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(why_not_preloaded(script.to_str().unwrap()), None);
    }
}
