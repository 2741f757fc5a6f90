//! Binaries of a target: those that are mapped, or those that the dynamic linker will load.

use std::fs;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, elf};

use super::arch::LIBRARY_DIRECTORIES;
use super::{foreign, maps, mmap, procfs};

/// Most libraries that are followed through `DT_NEEDED`.
const MAX_LIBRARIES: usize = 1000;

/// A binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Path in the target's mount namespace.
    pub path: PathBuf,
    /// Path under which prof can open it: the same, or one through `/proc` for a target in a
    /// container or a deleted file.
    pub open: PathBuf,
}

impl Binary {
    /// A file that has the same path for prof and the target.
    pub fn here(path: PathBuf) -> Binary {
        Binary { open: path.clone(), path }
    }

    /// True if `name` is its file name, or the part of that before `.so`.
    pub fn is_called(&self, name: &str) -> bool {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        let rest = file.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".so"))
    }
}

/// Files that a process has mapped as code, its program first.
pub fn mapped_by(pid: i32) -> Vec<Binary> {
    let live = procfs::live_thread(pid).unwrap_or(pid);
    let maps = procfs::maps(live).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut binaries: Vec<Binary> = Vec::new();
    let files = maps.lines().filter_map(maps::parse_line);
    for map in files.filter(|m| m.executable && m.path.starts_with('/')) {
        let path = PathBuf::from(map.path);
        if binaries.iter().all(|b| b.path != path) {
            let root = format!("/proc/{live}/root{}", map.path);
            let open = if map.deleted || foreign::resolve(Path::new(&root)).is_err() {
                format!("/proc/{live}/map_files/{:x}-{:x}", map.start, map.end)
            } else if same_root(live) {
                map.path.to_owned()
            } else {
                root
            };
            binaries.push(Binary { path, open: open.into() });
        }
    }
    let program = procfs::executable(live).unwrap_or_default();
    binaries.sort_by_key(|b| b.path != program);
    binaries
}

/// True if the process has prof's own root directory and mounts.
pub fn same_root(pid: i32) -> bool {
    let link = |pid: &str, what: &str| fs::read_link(format!("/proc/{pid}/{what}")).ok();
    let same =
        |what| link(&pid.to_string(), what).is_some_and(|other| Some(other) == link("self", what));
    same("root") && same("ns/mnt")
}

/// The program of a command and the libraries that it will be linked with, if they are in the usual
/// directories. For a script: those of its interpreter.
pub fn for_command(name: &str) -> Vec<Binary> {
    let Some(mut program) = program(name) else { return Vec::new() };
    for _ in 0..4 {
        match interpreter(&program) {
            Some(next) => program = next,
            None => break,
        }
    }
    let mut binaries = vec![Binary::here(program)];
    let mut at = 0;
    while at < binaries.len() && binaries.len() < MAX_LIBRARIES {
        for library in needed(&binaries[at].path).into_iter().filter_map(|n| library(&n)) {
            if binaries.iter().all(|b| b.path != library) {
                binaries.push(Binary::here(library));
            }
        }
        at += 1;
    }
    binaries
}

/// The file that a shell would run.
pub fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return fs::canonicalize(name).ok().filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.filter_map(|file| fs::canonicalize(file).ok()).find(|file| file.is_file())
}

/// Path of the interpreter in the first line of a script.
fn interpreter(script: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut start = [0; 256];
    let length = foreign::open(script).ok()?.read(&mut start).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if first.ends_with("/env") {
        program(words.find(|word| !word.starts_with('-') && !word.contains('='))?)
    } else {
        program(first)
    }
}

/// The file of a library in the usual directories (`ld.so(8)`), by its name or the part of that
/// before `.so`.
pub fn library(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    let versions = |directory: &Path| {
        let files = fs::read_dir(directory)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        files
            .filter(|file| file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".so")))
            .min()
    };
    let more = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = LIBRARY_DIRECTORIES.into_iter().chain(["/lib", "/usr/lib", "/usr/local/lib"]);
    let mut directories = std::env::split_paths(&more).chain(usual.map(PathBuf::from));
    directories.find_map(|directory| {
        let file = |name: &str| fs::canonicalize(directory.join(name)).ok().filter(|f| f.is_file());
        file(name).or_else(|| file(&versions(&directory)?))
    })
}

/// Libraries in the `DT_NEEDED` entries of a file.
fn needed(path: &Path) -> Vec<String> {
    read_needed(path).unwrap_or_default()
}

fn read_needed(path: &Path) -> Option<Vec<String>> {
    let map = mmap::map(&foreign::open(path).ok()?).ok()?;
    let cache = &*map;
    let header = elf::FileHeader64::<Endianness>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, cache).ok()?;
    let (entries, strings) = sections.dynamic(endian, cache).ok()??;
    let strings = sections.strings(endian, cache, strings).ok()?;
    let names = entries.iter().filter(|e| e.tag(endian) == elf::DT_NEEDED);
    let names = names.filter_map(|e| strings.get(e.val32(endian)?).ok());
    Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Binaries of all `pids`, each once.
pub fn mapped_by_all(pids: &[i32]) -> Vec<Binary> {
    let mut all: Vec<Binary> = Vec::new();
    for binary in pids.iter().flat_map(|&pid| mapped_by(pid)) {
        if all.iter().all(|b| *b != binary) {
            all.push(binary);
        }
    }
    all
}

/// Processes of these threads.
pub fn owners(tids: &[i32]) -> Vec<i32> {
    let mut pids: Vec<i32> = tids.iter().filter_map(|&t| Some(procfs::owner(t)?.0)).collect();
    pids.dedup();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_program_and_libraries() {
        let pid = std::process::id() as i32;
        let binaries = mapped_by(pid);
        assert_eq!(Some(&binaries[0].path), std::env::current_exe().ok().as_ref());
        assert!(binaries.iter().all(|b| b.open.exists()), "{binaries:?}");
        let libc = binaries.iter().find(|b| b.is_called("libc")).unwrap();
        assert!(libc.is_called("libc.so.6") && !libc.is_called("lib") && !libc.is_called("c"));
    }

    #[test]
    fn a_commands_libraries_are_found_before_it_runs() {
        let own = std::env::current_exe().unwrap();
        let binaries = for_command(own.to_str().unwrap());
        assert_eq!(binaries[0].path, own.canonicalize().unwrap());
        assert!(binaries.iter().any(|b| b.is_called("libc")), "{binaries:?}");
        assert!(for_command("no-such-program-at-all").is_empty());
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        let shell = program("sh").unwrap();
        assert_eq!(for_command(script.to_str().unwrap())[0].path, shell);
    }
}
