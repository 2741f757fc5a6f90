//! A file that a target names or leaves behind is a trap: a FIFO, a device, a bomb. prof ends in
//! bounded time with exit code 0, the recording is there, and prof reports the binaries without
//! names, and the reason.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use crate::common;
use crate::common::run::{run, tool};
use crate::common::system::needs_root;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{
    Build, Output, Pprof, Prof, Running, needs, read, target, temp_dir, write_program,
};

const WORK: &str = "volatile unsigned long x;
    __attribute__((noinline)) void work(void) { for (long i = 0; i < 300000000L; i++) x += i; }
    int main(void) { work(); return 0; }";

/// Compiles a program that runs in `work` for a while.
fn program(dir: &Path, name: &str, flags: &str) -> PathBuf {
    fs::write(dir.join("work.c"), WORK).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(dir).args(["-O1", "-o", name, "work.c"]).args(flags.split_whitespace());
    run(gcc).ok();
    dir.join(name)
}

fn objcopy(dir: &Path, args: &str) {
    let mut objcopy = Command::new("objcopy");
    objcopy.current_dir(dir).args(args.split_whitespace());
    run(objcopy).ok();
}

fn fifo(path: &Path) {
    tool("mkfifo", &[path.as_os_str()]);
}

/// Records a program to its end; a hang ends the test.
#[track_caller]
fn record(dir: &Path, program: &Path) -> (Pprof, Output) {
    let out = Prof::new(dir, "record -F 499").target(program, "").run().ok();
    let p = read(dir.join("profile.pb.gz"));
    assert!(p.figure("samples") > 10, "{}", out.stderr);
    (p, out)
}

/// The same of a program whose symbol table, at least, is intact.
#[track_caller]
fn names_stay(dir: &Path, program: &Path) {
    let (p, out) = record(dir, program);
    assert!(p.self_share("work") > 80.0, "{}", out.stderr);
}

#[test]
fn a_fifo_in_place_of_a_dwp_file_is_not_opened() {
    let dir = temp_dir();
    for flags in ["-g", "-g -gsplit-dwarf"] {
        let program = program(dir.path(), "prog", flags);
        fs::remove_file(dir.path().join("prog.dwp")).ok();
        fifo(&dir.path().join("prog.dwp"));
        names_stay(dir.path(), &program);
    }
}

#[test]
fn a_link_to_shared_debug_information_leads_to_no_fifo_and_no_device() {
    let dir = temp_dir();
    let path = dir.path();
    fifo(&path.join("fifo"));
    symlink("/dev/zero", path.join("zero")).unwrap();
    for trap in ["fifo", "zero"] {
        let whole = program(path, "whole", "-g");
        let link = format!("{}\0ABCDEFGHIJKLMNOPQRST", path.join(trap).display());
        fs::write(path.join("link"), link).unwrap();
        objcopy(path, "--add-section .gnu_debugaltlink=link whole prog");
        names_stay(path, &path.join("prog"));
        fs::remove_file(whole).unwrap();
    }
}

#[test]
fn a_link_to_a_debug_file_of_2_tib_is_not_followed() {
    let dir = temp_dir();
    let path = dir.path();
    let whole = program(path, "whole", "-g -Wl,--build-id=none");
    fs::copy(&whole, path.join("big.debug")).unwrap();
    let big = fs::OpenOptions::new().write(true).open(path.join("big.debug")).unwrap();
    // Some file systems refuse files of that size.
    if big.set_len(2 << 40).is_err() {
        big.set_len(15 << 40 >> 4).unwrap();
    }
    fs::write(path.join("link"), b"big.debug\0\0\0\x01\0\0\0").unwrap();
    objcopy(path, "--strip-all --add-section .gnu_debuglink=link whole stripped");
    record(path, &path.join("stripped"));
    // blazesym follows the link of a file that has debug information, too.
    objcopy(path, "--add-section .gnu_debuglink=link whole full");
    names_stay(path, &path.join("full"));
}

/// Offset and size of a section's bytes in a file, and of its header.
fn section(data: &[u8], name: &str) -> Option<(usize, usize)> {
    let elf = object::File::parse(data).unwrap();
    let (start, size) = elf.section_by_name(name)?.file_range()?;
    Some((start as usize, size as usize))
}

#[test]
fn compressed_sections_that_claim_too_much_are_not_unpacked() {
    let dir = temp_dir();
    let path = dir.path();
    let whole = fs::read(program(path, "prog", "-g -gz=zlib")).unwrap();
    for claimed in [1_u64 << 46, 1 << 29, u64::MAX] {
        let mut data = whole.clone();
        let mut found = 0;
        for name in [".debug_info", ".debug_line", ".debug_str", ".debug_abbrev"] {
            let Some((start, _)) = section(&whole, name) else { continue };
            // `ch_type` 1: zlib. Small sections stay as they are.
            if whole[start..start + 4] == [1, 0, 0, 0] {
                data[start + 8..start + 16].copy_from_slice(&claimed.to_le_bytes());
                found += 1;
            }
        }
        assert!(found > 0, "nothing is compressed");
        write_program(path.join("prog"), &data);
        let (_, out) = record(path, &path.join("prog"));
        assert!(out.stderr.contains("compressed sections"), "{}", out.stderr);
    }
}

/// Compresses `blocks` times this block.
fn packed(block: &[u8], blocks: usize) -> Vec<u8> {
    use std::io::Write;
    let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    (0..blocks).for_each(|_| z.write_all(block).unwrap());
    z.finish().unwrap()
}

/// Gives the program `prog` these sections, with compressed contents that claim a size.
fn add_compressed(path: &Path, names: &[&str], contents: &[u8], claimed: u64) {
    let header = [1_u32.to_le_bytes(), [0; 4]].concat();
    let header = [header, claimed.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat();
    fs::write(path.join("contents"), [&header, contents].concat()).unwrap();
    program(path, "whole", "-g");
    let remove: String = names.iter().map(|name| format!("--remove-section {name} ")).collect();
    let add: String = names.iter().map(|name| format!("--add-section {name}=contents ")).collect();
    objcopy(path, &format!("{remove} whole less"));
    objcopy(path, &format!("{add} less prog"));
    // `SHF_COMPRESSED`, which objcopy does not set.
    let mut data = fs::read(path.join("prog")).unwrap();
    let number = |at: usize, size: usize| {
        data[at..at + size].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
    };
    let (headers, count) = (number(40, 8), number(60, 2));
    let packed: Vec<usize> = (0..count)
        .map(|i| headers + 64 * i)
        .filter(|&at| number(at + 32, 8) == contents.len() + 24)
        .collect();
    assert_eq!(packed.len(), names.len());
    packed.into_iter().for_each(|at| data[at + 9] |= 0x8);
    write_program(path.join("prog"), &data);
}

/// Many sections of zeros, small in the file: each is acceptable, all together are not; and such
/// that unpack to more than they claim.
#[test]
fn a_bomb_of_compressed_sections_takes_little_memory() {
    let dir = temp_dir();
    let path = dir.path();
    let zeros = packed(&[0; 1 << 20], 1 << 10);
    let names = [".debug_str", ".debug_line", ".debug_ranges", ".debug_loc", ".debug_addr"];
    for claimed in [1_u64 << 30, 1 << 10] {
        add_compressed(path, &names, &zeros, claimed);
        let (p, out) = record(path, &path.join("prog"));
        let peak = p.figure("own-peak-memory") >> 20;
        assert!(peak < 1024, "{peak} MiB\n{}", out.stderr);
    }
}

/// A section that is credible, but needs more memory than the worker may have, which reports it.
#[test]
fn a_file_that_needs_too_much_memory_keeps_the_names_of_its_symbol_table() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let path = dir.path();
    // Hard to compress at first: a ratio of about 100.
    let mut block = vec![0; 1 << 15];
    let mut seed = 1_u32;
    for byte in &mut block[..300] {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (seed >> 24) as u8;
    }
    let blocks = 400 << 5;
    add_compressed(path, &[".debug_macinfo"], &packed(&block, blocks), (blocks as u64) << 15);
    Prof::new(&dir, "record -F 499 --no-symbolize").target(path.join("prog"), "").run().ok();
    fs::set_permissions(path.join("profile.pb.gz"), fs::Permissions::from_mode(0o666)).unwrap();
    // Without rights, its hard limit of 256 MiB holds for its workers.
    let whole = unprivileged(path, "symbolize -o named.pb.gz");
    let mut prof = Prof::new(&dir, "");
    prof.command = Command::new("sh");
    prof.command.current_dir(path).args(["-c", "ulimit -d 262144; exec \"$0\" \"$@\""]);
    prof.command.arg(whole.command.get_program()).args(whole.command.get_args());
    let out = prof.run().ok();
    let p = read(path.join("named.pb.gz"));
    assert!(p.self_share("work") > 80.0, "{}", out.stderr);
    assert!(out.stderr.contains("MiB of memory"), "{}", out.stderr);
}

/// A mapping that is gone when its sample is processed, and another file under its name.
#[test]
fn a_replacement_of_a_mapped_file_is_not_opened() {
    let program = target("swaps", Build::C);
    for trap in ["fifo", "/dev/zero"] {
        let dir = temp_dir();
        let swaps = Running::start(Command::new(&program).arg(dir.path()).arg(trap));
        let out = Prof::new(&dir, &format!("record -F 999 -d 2 -p {}", swaps.pid())).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.figure("samples") > 100, "{}", out.stderr);
    }
}

/// A process that may mount in a namespace of its own can show any file as its perf map, without
/// the right to read it.
#[test]
fn a_perf_map_that_its_process_could_not_read_names_nothing() {
    const NOBODY: u32 = 65534;
    let become_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups unshare -Urm";
    if !needs_root() || !needs(&["setpriv", "unshare", "mount"]) {
        return;
    }
    let can = Command::new("sh").args(["-c", &format!("{become_nobody} true 2>&1")]).output();
    if !can.is_ok_and(|out| out.status.success()) {
        return common::skip("users may not make namespaces");
    }
    let program = target("jit", Build::CFramePointers);
    for (owner, named) in [(0, false), (NOBODY, true)] {
        let dir = temp_dir();
        let path = dir.path();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        common::copy_program(&program, path.join("jit"));
        // For code at any address; one entry has 2 GiB at most.
        let lines = (0..1_u64 << 16).map(|n| format!("{:x} 80000000 SECRET\n", n << 31));
        fs::write(path.join("secret"), lines.collect::<String>()).unwrap();
        fs::set_permissions(path.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(path.join("secret"), Some(owner), Some(owner)).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        let secret = fs::OpenOptions::new().write(true).open(path.join("secret")).unwrap();
        secret.set_modified(later).unwrap();
        let inside = "touch /tmp/perf-$$.map && mount --bind secret /tmp/perf-$$.map && \
                      exec ./jit none 600";
        let script = format!("{become_nobody} sh -c '{inside}'");
        let prof = Prof::new(path, "record -F 999 -- sh -c").arg(script);
        prof.run().ok();
        let p = read(path.join("profile.pb.gz"));
        for pid in p.label_values("pid") {
            fs::remove_file(format!("/tmp/perf-{pid}.map")).ok();
        }
        assert!(p.figure("samples") > 200, "{:?}", p.comments);
        assert_eq!(p.total_share("SECRET") > 50.0, named, "owner {owner}: {:?}", p.mappings);
    }
}
