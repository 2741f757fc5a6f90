//! The cgroups (v2) of a target, by their identifiers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use super::Event;
use super::target::cgroups_below;

/// A cgroup and its descendants.
///
/// The kernel starts the counters of a cgroup before it switches to a thread there: it samples the
/// thread before, too, until it has switched (`perf_cgroup_switch` in kernel/events/core.c).
#[derive(Debug)]
pub struct CgroupMembers {
    directory: PathBuf,
    members: FxHashSet<u64>,
    others: FxHashSet<u64>,
}

impl CgroupMembers {
    /// The cgroup with this directory and its descendants.
    pub fn new(directory: &Path) -> CgroupMembers {
        let mut members = CgroupMembers {
            directory: directory.to_owned(),
            members: FxHashSet::default(),
            others: FxHashSet::default(),
        };
        members.read();
        members
    }

    /// True unless an event is a sample of a process in another cgroup.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Sample { sample, .. } => sample.cgroup.is_none_or(|id| self.contains(id)),
            Event::Other(_) => true,
        }
    }

    /// True if a cgroup is one of them. False only if it is known to be another: a cgroup that was
    /// removed before this call may have been one of them.
    fn contains(&mut self, id: u64) -> bool {
        if self.members.contains(&id) {
            return true;
        }
        if !self.others.contains(&id) {
            self.read();
            if !self.others.contains(&id) {
                self.members.insert(id);
            }
        }
        !self.others.contains(&id)
    }

    fn read(&mut self) {
        let is_cgroup = |path: &&Path| path.join("cgroup.procs").exists();
        let root = self.directory.ancestors().take_while(is_cgroup).last();
        self.members = identifiers(&self.directory);
        self.others = root.map(identifiers).unwrap_or_default();
        self.others.retain(|id| !self.members.contains(id));
    }
}

/// The identifiers of the cgroup with this directory and of its descendants: the numbers of their
/// inodes (`kernfs_ino` in include/linux/kernfs.h).
fn identifiers(directory: &Path) -> FxHashSet<u64> {
    let directories = cgroups_below(directory);
    directories.iter().flat_map(fs::metadata).map(|directory| directory.ino()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(path: &Path) -> u64 {
        fs::create_dir(path).unwrap();
        fs::write(path.join("cgroup.procs"), "").unwrap();
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn only_descendants_are_members() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let root = cgroup(&at("root"));
        let (target, other) = (cgroup(&at("root/a")), cgroup(&at("root/ab")));
        let inner = cgroup(&at("root/a/inner"));
        let mut members = CgroupMembers::new(&at("root/a"));
        assert!(members.contains(target) && members.contains(inner));
        assert!(!members.contains(root) && !members.contains(other));
        let (later, later_other) = (cgroup(&at("root/a/later")), cgroup(&at("root/later")));
        assert!(members.contains(later) && !members.contains(later_other));
        // It is not there any more.
        assert!(members.contains(u64::MAX));
        assert!(members.contains(target) && !members.contains(other));
    }
}
