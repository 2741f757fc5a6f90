//! Tests of files that are replaced.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use profile::Builder;
use sys::testing::{skip, skip_hardware};

fn profile() -> Profile {
    Builder::new(&[("cpu", "nanoseconds")]).finish(None)
}

fn recording(path: &Path) -> anyhow::Result<Output> {
    Output::create_recording(path, WithoutSamples::ReplacesNothing)
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn error(path: &Path) -> String {
    format!("{:#}", Output::create(path).unwrap_err())
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.pb.gz");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let output = Output::create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    let bytes = output.write(&profile()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(entries(dir.path()), ["p.pb.gz"]);
}

#[test]
fn an_unused_output_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let output = Output::create(&dir.path().join("p.pb.gz")).unwrap();
    drop(output);
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn only_the_user_may_read_a_new_profile() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, drawing, other) =
        (dir.path().join("p.pb.gz"), dir.path().join("p.svg"), dir.path().join("other"));
    Output::create(&ours).unwrap().write(&profile()).unwrap();
    Output::create_any(&drawing).unwrap().write(&profile()).unwrap();
    fs::write(&other, "").unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&ours), 0o600);
    let root = sys::os::uid() == 0;
    assert_eq!(mode(&drawing), if root { 0o600 } else { mode(&other) });
}

#[test]
fn a_kept_profile_is_replaced_by_the_written_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.pb.gz");
    for there_before in [false, true] {
        let mut output = Output::create(&path).unwrap();
        assert_eq!(path.exists(), there_before);
        assert!(output.keep(b"first").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        let mut next = output.write_with(|out| out.write_all(b"second"));
        assert_eq!(next.unwrap(), 6);
        assert_eq!(fs::read(&path).unwrap(), b"second");
        let mut output = Output::create(&path).unwrap();
        assert!(output.keep(b"third").unwrap());
        next = output.write_with(|_| Err(ErrorKind::StorageFull.into()));
        assert!(next.unwrap_err().to_string().contains("no space"));
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(entries(dir.path()), ["p.pb.gz"]);
    }
    assert!(!Output::create(Path::new("/dev/null")).unwrap().keep(b"x").unwrap());
}

#[test]
fn the_profile_before_a_recording_stays_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("profile.pb.gz");
    let old = dir.path().join("profile.old.pb.gz");
    for before in ["", "first", "second"] {
        fs::write(&path, before).unwrap();
        let mut output = recording(&path).unwrap();
        assert_eq!(output.refuses_empty(), !before.is_empty());
        if before == "second" {
            // Written twice: without names, and with them.
            assert!(output.keep(b"unnamed").unwrap());
        }
        output.write_with(|out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_to_string(&old).unwrap_or_default(), before);
    }
    assert_eq!(entries(dir.path()), ["profile.old.pb.gz", "profile.pb.gz"]);
    // Both names are one file's.
    fs::remove_file(&old).unwrap();
    fs::hard_link(&path, &old).unwrap();
    recording(&path).unwrap().write_with(|out| out.write_all(b"newer")).unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(&old).unwrap()),
        (b"newer".into(), b"new".into())
    );
    assert_eq!(entries(dir.path()), ["profile.old.pb.gz", "profile.pb.gz"]);
}

#[test]
fn a_link_under_the_other_name_is_replaced_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("p.pb.gz"), dir.path().join("p.old.pb.gz"));
    let victim = dir.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    fs::write(&path, "before").unwrap();
    std::os::unix::fs::symlink(&victim, &old).unwrap();
    recording(&path).unwrap().write_with(|out| out.write_all(b"new")).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert!(fs::symlink_metadata(&old).unwrap().is_file());
    assert_eq!(fs::read(&old).unwrap(), b"before");
}

/// So that nothing of it is left however prof ends.
#[test]
fn an_unfinished_file_has_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let output = Output::create(&dir.path().join("p.pb.gz")).unwrap();
    match output.temporary() {
        None => assert!(entries(dir.path()).is_empty()),
        Some(path) => {
            skip_hardware(&format!(
                "no files without a name on the file system of {}",
                path.display()
            ));
        }
    }
}

#[test]
fn files_of_a_killed_prof_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let directory = fs::File::open(dir.path()).unwrap().into();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let leave = |name: &str| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(long_ago).unwrap();
        file
    };
    leave(".prof-abcdef.tmp");
    leave(".prof-other");
    File::create(dir.path().join(".prof-young.tmp")).unwrap();
    let used = leave(".prof-used.tmp");
    used.lock().unwrap();
    temporary::remove_stale(&directory);
    assert_eq!(entries(dir.path()), [".prof-other", ".prof-used.tmp", ".prof-young.tmp"]);
}

#[test]
fn a_file_with_a_temporary_name_gets_its_own_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let directory = fs::File::open(dir.path()).unwrap().into();
    let create =
        || Temporary::with_name(&directory, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let file = create();
    assert_eq!(entries(dir.path()), [file.name().unwrap()]);
    drop(file);
    assert!(entries(dir.path()).is_empty());
    for _ in 0..2 {
        create().put(&directory, "p".as_ref()).unwrap();
        assert_eq!(entries(dir.path()), ["p"]);
    }
}

/// A directory like `/tmp`: all may write to it, only owners may remove.
fn shared_directory(dir: &Path) -> PathBuf {
    let shared = dir.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    shared
}

/// Gives a file, or a link, to another user; false where that is not permitted.
fn give_away(path: &Path) -> bool {
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).is_ok()
}

/// As the kernel has it with `fs.protected_symlinks`, `protected_regular` and `protected_fifos`.
#[test]
fn files_of_others_in_a_shared_directory_are_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let shared = shared_directory(dir.path());
    let secret = dir.path().join("secret");
    let missing = dir.path().join("missing");
    fs::write(&secret, "secret").unwrap();
    let link = |name: &str, to: &Path| {
        std::os::unix::fs::symlink(to, shared.join(name)).unwrap();
        shared.join(name)
    };
    let theirs = link("p.pb.gz", &secret);
    let dangling = link("dangling", &missing);
    let file = shared.join("file");
    fs::write(&file, "").unwrap();
    // Files of the user or of the directory's owner are used.
    for ours in [link("ours", &secret), file.clone()] {
        drop(Output::create(&ours).unwrap());
    }
    let given = [&theirs, &dangling, &file].map(|path| give_away(path));
    if given != [true; 3] {
        return skip("only root can give files away");
    }
    assert!(error(&theirs).contains("it is a symbolic link of another user"), "{}", error(&theirs));
    assert!(error(&dangling).contains("a symbolic link of another user"), "{}", error(&dangling));
    assert!(error(&file).contains("it is a file of another user"), "{}", error(&file));
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert!(!missing.exists());
    // Also if a link of the user leads to another user's file.
    let ours = dir.path().join("link");
    std::os::unix::fs::symlink("shared/p.pb.gz", &ours).unwrap();
    assert!(error(&ours).contains("of another user"), "{}", error(&ours));
    // The directory's owner may create any file in it.
    assert!(give_away(&shared));
    drop(Output::create(&theirs).unwrap());
}

#[test]
fn the_permissions_of_another_users_file_are_not_roots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.pb.gz");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    if !give_away(&path) {
        return skip("only root can give files away");
    }
    Output::create(&path).unwrap().write(&profile()).unwrap();
    let about = fs::metadata(&path).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o600));
}

#[test]
fn a_link_stays_and_its_target_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("directory");
    fs::create_dir(&directory).unwrap();
    for there_before in [false, true] {
        let link = dir.path().join(format!("link-{there_before}"));
        std::os::unix::fs::symlink("directory/target", &link).unwrap();
        Output::create(&link).unwrap().write(&profile()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(entries(&directory), ["target"]);
    }
    let ring = dir.path().join("ring");
    std::os::unix::fs::symlink("ring", &ring).unwrap();
    assert!(error(&ring).contains("symbolic links"), "{}", error(&ring));
}

#[test]
fn unwritable_paths_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    assert!(error(dir.path()).contains("it is a directory"));
    let missing = dir.path().join("missing");
    let text = error(&missing.join("p.pb.gz"));
    assert!(text.contains(&format!("there is no directory {}", missing.display())), "{text}");
    let text = error(Path::new("/proc/x.pb.gz"));
    assert!(text.contains("no file can be created in /proc"), "{text}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("gone/x.pb.gz", &link).unwrap();
    let gone = format!("there is no directory {}", dir.path().join("gone").display());
    assert!(error(&link).contains(&gone), "{}", error(&link));
    assert!(error(&dir.path().join("new/")).contains("it is a directory"));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(error(&file.join("p")).ends_with("not a directory"), "{}", error(&file.join("p")));
}

#[test]
fn devices_are_written_through() {
    assert!(Output::create(Path::new("/dev/null")).unwrap().write(&profile()).unwrap() > 0);
    let full = Output::create(Path::new("/dev/full")).unwrap();
    let text = format!("{:#}", full.write(&profile()).unwrap_err());
    assert!(text.contains("cannot write /dev/full: no space left"), "{text}");
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.pb.gz");
    fs::write(&path, "old").unwrap();
    let mut output = Output::create(&path).unwrap();
    // A file that is open for reading only: every write fails.
    let Sink::Replace(temporary, _) = &mut output.sink else { panic!("a regular file") };
    *temporary.file_mut() = File::open("/dev/null").unwrap();
    assert!(output.write(&profile()).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(entries(dir.path()), ["p.pb.gz"]);
}
