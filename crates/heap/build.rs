//! Compiles the preloaded library, which is embedded into prof.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Directory of its sources, which are not a module of the crate.
const SOURCES: &str = "preload";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    let var = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let out = PathBuf::from(var("OUT_DIR")).join("libprof_heap.so");
    let mut rustc = Command::new(var("RUSTC"));
    rustc.arg(format!("{SOURCES}/lib.rs")).arg("--target").arg(var("TARGET")).arg("-o").arg(&out);
    rustc.args(["--edition=2024", "--crate-name=prof_heap", "--crate-type=cdylib"]);
    // One unit of code: the hooks and the thread-local memory are in one assembly.
    rustc.args(["-Copt-level=3", "-Ccodegen-units=1", "-Cpanic=abort", "-Cstrip=symbols"]);
    // prof's own unwinding walks through it, and so do exceptions.
    rustc.arg("-Cforce-unwind-tables=yes");
    // No start-up code of the C library, and no dependency on a library: the program's C library,
    // whichever it is, is already loaded.
    rustc.args(["-Clink-arg=-nostartfiles", "-Clink-arg=-Wl,-Bsymbolic,--hash-style=gnu"]);
    rustc.arg("-Clink-arg=-Wl,-soname,libprof_heap.so");
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut linker_is = std::ffi::OsString::from("-Clinker=");
        linker_is.push(linker);
        rustc.arg(linker_is);
    }
    let status = rustc.status().unwrap_or_else(|e| panic!("{rustc:?}: {e}"));
    assert!(status.success(), "{rustc:?}: {status}");
    assert!(
        fs::metadata(&out).is_ok_and(|m| m.len() > 0),
        "{}: nothing was written",
        out.display()
    );
}
