//! Root directories of processes, kept so that their files can be opened after the processes have
//! ended.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::Root;
use crate::procfs;

/// Most root directories that are kept: each takes two descriptors.
const MAX_ROOTS: usize = 64;

/// What distinguishes two root directories: the same directory has other files in it where another
/// mount namespace has another mount below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RootId {
    namespace: u64,
    device: u64,
    inode: u64,
}

/// Root directories of processes that have another one than prof, each once.
#[derive(Debug, Default)]
pub struct Roots {
    kept: Vec<(RootId, Arc<Root>)>,
    /// prof's own, once it was needed.
    own: Option<RootId>,
}

impl Roots {
    /// The root directory of a process, if it is not prof's own; `None` as well if the process has
    /// ended, this user may not inspect it, or too many are kept.
    pub fn get(&mut self, pid: i32) -> Option<Arc<Root>> {
        let live = || open(&procfs::live_thread(pid)?.to_string()).ok();
        let (id, root) = open(&pid.to_string()).ok().or_else(live)?;
        if let Some((_, kept)) = self.kept.iter().find(|(kept, _)| *kept == id) {
            return Some(kept.clone());
        }
        self.own = self.own.or_else(|| open("self").ok().map(|(own, _)| own));
        if self.own == Some(id) || self.kept.len() >= MAX_ROOTS {
            return None;
        }
        let root = Arc::new(root);
        self.kept.push((id, root.clone()));
        Some(root)
    }
}

fn open(process: &str) -> io::Result<(RootId, Root)> {
    let namespace = File::open(format!("/proc/{process}/ns/mnt"))?;
    let mut root = Root::at(format!("/proc/{process}/root").as_ref())?;
    let directory = File::from(root.directory.try_clone()?).metadata()?;
    let (device, inode) = (directory.dev(), directory.ino());
    let id = RootId { namespace: namespace.metadata()?.ino(), device, inode };
    root._namespace = Some(namespace);
    Ok((id, root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Links;
    use std::io::BufRead;
    use std::path::Path;
    use std::process::{Command, Stdio};

    #[test]
    fn the_root_of_another_mount_namespace_outlives_its_processes() {
        if crate::os::uid() != 0 {
            return crate::testing::skip("it needs root");
        }
        let mut roots = Roots::default();
        assert!(roots.get(std::process::id() as i32).is_none(), "it is prof's own");
        let dir = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs none \"$0\" && echo theirs > \"$0/file\" && echo && read _";
        let mut process = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let root = roots.get(process.id() as i32).unwrap();
        let again = roots.get(process.id() as i32).unwrap();
        assert!(Arc::ptr_eq(&root, &again));
        drop(process.stdin.take());
        process.wait().unwrap();
        assert!(roots.get(process.id() as i32).is_none(), "it has ended");
        let file = dir.path().join("file");
        assert!(!Path::new(&file).exists());
        let mut text = String::new();
        let mut opened = root.open(&file, Links::Follow).unwrap();
        std::io::Read::read_to_string(&mut opened, &mut text).unwrap();
        assert_eq!(text, "theirs\n");
    }
}
