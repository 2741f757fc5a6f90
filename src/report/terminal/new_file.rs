//! A new file, which has its name when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{self as unix, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// Permissions before the umask is subtracted, as those of `-o`: profiles, and what root writes, are
/// for the owner alone.
fn mode(path: &Path) -> u32 {
    let is_profile = path.as_os_str().as_encoded_bytes().ends_with(b".pb.gz");
    if is_profile || sys::os::uid() == 0 { 0o600 } else { 0o666 }
}

/// Writes a new file. Another file of this name stays as it is: a name is typed fast.
///
/// # Errors
///
/// There is such a file, or it cannot be written; then nothing is left of it.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    match write_unnamed(path, content) {
        // The file system, or the kernel, has no files without a name.
        Err(error) if is_unsupported(&error) => write_named(path, content),
        written => written,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL))
}

/// Writes a file without a name, so that nothing is left of it however prof ends, and names it.
fn write_unnamed(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::TMPFILE;
    let directory = directory.unwrap_or(Path::new("."));
    let mut file = File::from(unix::open(directory, flags, Mode::from_raw_mode(mode(path)))?);
    file.write_all(content)?;
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(unix::linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Writes a file that has its name from the beginning, and removes it after an error.
fn write_named(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode(path)).open(path)?;
    let written = file.write_all(content);
    if written.is_err() {
        // The error of writing is reported.
        fs::remove_file(path).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use sys::testing::skip;

    type Way = fn(&Path, &[u8]) -> io::Result<()>;
    const WAYS: [Way; 3] = [write, write_unnamed, write_named];

    #[test]
    fn a_file_that_exists_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        for (number, way) in WAYS.into_iter().enumerate() {
            let path = directory.path().join(format!("{number}.pb.gz"));
            way(&path, b"first").unwrap();
            assert_eq!(way(&path, b"second").unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"first");
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        }
        let missing = write(&directory.path().join("none/file"), b"text").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    /// A file system of 64 KiB, unmounted when dropped.
    struct SmallDisk(PathBuf);

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            Command::new("umount").arg("-l").arg(&self.0).status().ok();
        }
    }

    #[test]
    fn nothing_is_left_on_a_full_disk() {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "prof-test"]).arg(directory.path());
        if !mount.output().is_ok_and(|output| output.status.success()) {
            return skip("no tmpfs can be mounted");
        }
        let disk = SmallDisk(directory.path().to_owned());
        for way in WAYS {
            let path = disk.0.join("page.txt");
            let error = way(&path, &vec![b'x'; 1 << 20]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
            // After another file has been removed, the same name can be used.
            way(&path, b"text").unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
}
