use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use super::*;

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo {}", path.display());
}

#[test]
fn only_regular_files_of_ordinary_file_systems_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("file"), "text").unwrap();
    symlink("file", path("link")).unwrap();
    for name in ["file", "link"] {
        assert_eq!(read(&path(name), 4).unwrap(), b"text");
    }
    assert!(is_refused(&read(&path("file"), 3).unwrap_err()), "it is larger than the limit");
    fifo(&path("fifo"));
    symlink("/dev/zero", path("zero")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    File::create(path("huge")).unwrap().set_len(MAX_SIZE + 1).unwrap();
    for name in ["fifo", "zero", "socket", "huge", "."] {
        assert!(is_refused(&open(&path(name)).unwrap_err()), "{name}");
    }
    assert!(resolve(&path("fifo")).unwrap().metadata.file_type().is_fifo());
    for name in ["/proc/self/status", "/proc/kmsg", "/sys/kernel/notes"] {
        assert!(open(Path::new(name)).is_err(), "{name}");
    }
    assert_eq!(open(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(open(Path::new("")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn no_name_leads_through_a_magic_link() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let through = path_of(file.as_file());
    assert!(open(&through).is_err());
    assert!(resolve_link(&through).unwrap().open().is_ok());
    let dir = tempfile::tempdir().unwrap();
    symlink("/proc/self/exe", dir.path().join("exe")).unwrap();
    assert!(open(&dir.path().join("exe")).is_err());
}

#[test]
fn links_stay_below_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir_all(inside.join("etc")).unwrap();
    std::fs::write(inside.join("etc/passwd"), "theirs").unwrap();
    std::fs::write(dir.path().join("secret"), "ours").unwrap();
    symlink("/etc/passwd", inside.join("absolute")).unwrap();
    symlink("../../../../etc/passwd", inside.join("relative")).unwrap();
    symlink("../secret", inside.join("up")).unwrap();
    let root = Root::at(&inside).unwrap();
    for name in ["absolute", "/absolute", "relative", "/../../etc/passwd"] {
        assert_eq!(root.read(Path::new(name), 100).unwrap(), b"theirs", "{name}");
        let refused = name.ends_with('e') && root.open(Path::new(name), Links::Refuse).is_err();
        assert_eq!(refused, name.ends_with('e'), "{name}");
    }
    assert!(root.open(Path::new("up"), Links::Follow).is_err());
}

#[test]
fn names_below_a_process_are_resolved_in_its_root() {
    let link = |path| process_link(Path::new(path));
    assert_eq!(link("/proc/7/root/bin/x"), Some((7, ProcessLink::Root(Path::new("bin/x")))));
    assert_eq!(link("/proc/7/map_files/1-2"), Some((7, ProcessLink::Mapped)));
    for path in ["/proc/self/fd/7", "/proc/7/fd/3", "/proc/7/exe", "/bin/7/root/x", "/proc"] {
        assert_eq!(link(path), None, "{path}");
    }
    let exe = std::env::current_exe().unwrap();
    let id = |m: &Metadata| (m.dev(), m.ino());
    let path = format!("/proc/{}/root{}", std::process::id(), exe.display());
    let found = resolve(Path::new(&path)).unwrap();
    assert_eq!(id(&found.metadata), id(&std::fs::metadata(exe).unwrap()));
}
