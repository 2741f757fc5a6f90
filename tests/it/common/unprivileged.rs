//! prof for users without rights.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::system::needs_root;
use super::{Build, Prof, needs, target, temp_dir};

/// A directory that every user can write to, with copies of prof and `known` that every user can
/// run.
pub fn open_dir() -> tempfile::TempDir {
    let dir = temp_dir();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o777);
    let known = target("known", Build::C);
    for (program, name) in [(Path::new(env!("CARGO_BIN_EXE_prof")), "prof"), (&known, "known")] {
        super::copy_program(program, dir.path().join(name));
        open(&dir.path().join(name), 0o755);
    }
    dir
}

/// `prof ARGS…` as an ordinary user, without any capability; a recording is verbose.
pub fn unprivileged(dir: &Path, args: &str) -> Prof {
    without_rights(dir, &Prof::new(dir, args))
}

/// The same, as verbose as `args` make it.
pub fn unprivileged_plain(dir: &Path, args: &str) -> Prof {
    without_rights(dir, &Prof::plain(dir, args))
}

fn without_rights(dir: &Path, prof: &Prof) -> Prof {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(dir.join("prof"))
        .args(prof.command.get_args())
        .current_dir(dir);
    Prof { command }
}

/// True when tests can become another user.
#[track_caller]
pub fn can_drop_rights() -> bool {
    needs_root() && needs(&["setpriv"])
}
