//! Builds the programs of tests/targets/, once for each set of flags.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::run;

/// The compiler of a target, and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// `gcc -O2`, by gcc's default without frame pointers.
    C,
    /// The same with frame pointers.
    CFramePointers,
    /// The same with debug information.
    CDebug,
    /// `g++ -O2`, without frame pointers.
    Cpp,
    /// `rustc -O` with line tables.
    Rust,
    /// `go build`.
    Go,
    /// `javac`: a directory of classes.
    Java,
}

/// Held while a target is built.
static BUILDING: Mutex<()> = Mutex::new(());

/// Path of a file in tests/targets/.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(name)
}

/// Path of the built program NAME; builds it when it is not there yet or its source changed.
#[track_caller]
pub fn target(name: &str, build: Build) -> PathBuf {
    let (suffix, compiler, flags): (&str, &str, &[&str]) = match build {
        Build::C => ("c", "gcc", &["-O2", "-fomit-frame-pointer", "-pthread"]),
        Build::CFramePointers => {
            ("c", "gcc", &["-O2", "-fno-omit-frame-pointer", "-DFRAME_POINTERS", "-pthread"])
        }
        Build::CDebug => ("c", "gcc", &["-O2", "-g", "-fomit-frame-pointer", "-pthread"]),
        Build::Cpp => ("cpp", "g++", &["-O2", "-fomit-frame-pointer", "-pthread"]),
        Build::Rust => ("rs", "rustc", &["-O", "-Cdebuginfo=1", "--edition=2024"]),
        Build::Go => ("go", "go", &["build"]),
        Build::Java => ("java", "javac", &[]),
    };
    built(name, &format!("{name}.{suffix}"), compiler, flags)
}

/// Path of the output of a compiler for a source file, under a name.
#[track_caller]
pub fn built(name: &str, source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let source = self::source(source);
    let text = std::fs::read(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let mut hasher = DefaultHasher::new();
    (text, compiler, flags).hash(&mut hasher);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("targets")
        .join(format!("{:016x}", hasher.finish()));
    let program = dir.join(name);
    super::machine::share();
    // Two tests may need the same one at once: those of one process wait for each other, those
    // of others have their own file, which is renamed when it is whole.
    let _lock = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if !program.exists() {
        std::fs::create_dir_all(&dir).unwrap();
        let half = dir.join(format!("{name}.{}", std::process::id()));
        let mut command = Command::new(compiler);
        let out = if compiler == "javac" { "-d" } else { "-o" };
        command.args(flags).arg(out).arg(&half).arg(&source);
        // Go's cache is no concern of the tests, and HOME may not be writable.
        command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
        run::run(command).ok();
        std::fs::rename(&half, &program).unwrap();
    }
    program
}

/// Path of the program that cargo makes of the package NAME in tests/targets/, with its
/// dependencies; `None`: they are not available.
#[track_caller]
pub fn package(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    super::machine::share();
    let _lock = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--manifest-path"]);
    cargo.arg(source(name).join("Cargo.toml")).arg("--target-dir").arg(&target);
    let out = run::run(cargo);
    if !out.status.success() {
        let why = out.stderr.lines().find(|l| l.starts_with("error")).unwrap_or("no word");
        super::skip(&format!("{name} could not be built: {why}"));
        return None;
    }
    Some(target.join("release").join(name))
}

/// Copies a program that is to be executed. A process of its own does it: a child that another test
/// starts in that moment would inherit our descriptor, and a file that is open for writing cannot
/// be executed ("Text file busy").
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(status.success(), "cp {} {}: {status}", from.display(), to.display());
}

/// Writes a program that is to be executed, by another process for the reason of [`copy_program`].
#[track_caller]
pub fn write_program(path: impl AsRef<Path>, bytes: &[u8]) {
    let path = path.as_ref();
    let source = path.with_extension("bytes");
    std::fs::write(&source, bytes).unwrap();
    std::fs::remove_file(path).ok();
    copy_program(&source, path);
    std::fs::remove_file(source).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}
