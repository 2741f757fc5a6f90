//! Containers: identified by a process's cgroup path, named by their manager's files.
//!
//! The path contains the ID, or for some managers the name. The name of an ID is in the manager's
//! own files; those are read once for each container, if this user may:
//!
//! | manager | file |
//! |---|---|
//! | Docker | `/var/lib/docker/containers/ID/config.v2.json` (also below `/var/snap/docker/common/var-lib-docker`) |
//! | Podman | `/var/lib/containers/storage/overlay-containers/containers.json`, of a user below `~/.local/share` |
//! | CRI-O | `/run/containers/storage/overlay-containers/ID/userdata/config.json` |
//! | containerd | `/run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json` |

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::foreign;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// A container, as identified by a cgroup path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// The 64 hexadecimal digits that Docker, Podman, containerd and CRI-O use.
    Id(String),
    /// The name that LXC and systemd-nspawn use.
    Name(String),
}

/// The innermost container in a cgroup path.
pub fn in_path(path: &str) -> Option<Container> {
    let parts: Vec<&str> = path.split('/').collect();
    parts.iter().enumerate().rev().find_map(|(i, part)| {
        let is_id = |s: &&str| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit());
        // `docker-ID.scope`, `libpod-ID.scope/container`, `cri-containerd-ID.scope`, `docker/ID`;
        // `libpod-conmon-ID.scope` and `crio-conmon-ID.scope` hold the monitor of a container.
        if let Some(id) = part.split(['-', '.', ':']).rev().find(is_id) {
            return (!part.contains("conmon")).then(|| Container::Id(id.to_owned()));
        }
        let name = part
            .strip_prefix("lxc.payload.")
            .or_else(|| part.strip_prefix("systemd-nspawn@")?.strip_suffix(".service"))
            .or_else(|| part.strip_prefix("machine-")?.strip_suffix(".scope"))
            .or_else(|| (i > 0 && parts[i - 1] == "lxc").then_some(*part))
            .filter(|name| !name.is_empty() && !name.starts_with("qemu\\x2d"))?;
        Some(Container::Name(unescaped(name)))
    })
}

/// A systemd unit's name without its escapes: `\x2d` for `-`.
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(u8::is_ascii_graphic) {
            Some(byte) => {
                out.push(byte as char);
                out.push_str(&part[2..]);
            }
            None => {
                out.push_str("\\x");
                out.push_str(part);
            }
        }
    }
    out
}

/// Name of the container with this ID, whose processes belong to the user `uid`; `root` is `/`,
/// except in tests. `None` if the manager's files do not contain it, or this user may not read
/// them.
pub fn name_of(root: &Path, id: &str, uid: Option<u32>) -> Option<String> {
    docker(root, id).or_else(|| podman(root, id, uid)).or_else(|| by_annotations(root, id))
}

fn docker(root: &Path, id: &str) -> Option<String> {
    let directories = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];
    directories.iter().find_map(|directory| {
        let config =
            json(&root.join(directory).join("containers").join(id).join("config.v2.json"))?;
        Some(config["Name"].as_str()?.trim_start_matches('/').to_owned())
    })
}

fn podman(root: &Path, id: &str, uid: Option<u32>) -> Option<String> {
    let storage = "containers/storage/overlay-containers/containers.json";
    let home = uid.filter(|&uid| uid != 0).and_then(|uid| home_of(root, uid));
    let own = home.map(|home| root.join(home).join(".local/share").join(storage));
    [root.join("var/lib").join(storage)].into_iter().chain(own).find_map(|path| {
        let containers = json(&path)?;
        let ours = containers.as_array()?.iter().find(|c| c["id"] == id)?;
        Some(ours["names"].get(0)?.as_str()?.to_owned())
    })
}

/// Home directory of a user, without the leading slash.
fn home_of(root: &Path, uid: u32) -> Option<PathBuf> {
    let users = read(&root.join("etc/passwd"))?;
    let users = String::from_utf8_lossy(&users);
    let user = users.lines().map(|l| l.split(':').collect::<Vec<_>>());
    let mut ours = user.filter(|f| f.get(2).and_then(|n| n.parse().ok()) == Some(uid));
    Some(PathBuf::from(ours.next()?.get(5)?.trim_start_matches('/')))
}

/// Name by the annotations in the runtime's configuration (OCI's `config.json`).
fn by_annotations(root: &Path, id: &str) -> Option<String> {
    let crio = root.join("run/containers/storage/overlay-containers").join(id).join("userdata");
    let tasks = root.join("run/containerd/io.containerd.runtime.v2.task");
    let spaces = fs::read_dir(tasks).into_iter().flatten().flatten();
    let directories = std::iter::once(crio).chain(spaces.map(|space| space.path().join(id)));
    directories.into_iter().find_map(|directory| {
        let config = json(&directory.join("config.json"))?;
        let text = |keys: &[&str]| {
            keys.iter().find_map(|&key| config["annotations"].get(key)?.as_str().map(str::to_owned))
        };
        let name = text(&[
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
            "nerdctl/name",
            "io.podman.annotations.name",
        ]);
        let pod = text(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
        let space = text(&["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]);
        let parts: Vec<String> = [space, pod, name].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("/"))
    })
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&read(path)?).ok()
}

/// Reads a file that a user may have replaced by anything in the directories of its own containers.
fn read(path: &Path) -> Option<Vec<u8>> {
    foreign::read(path, MAX_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn paths_of_all_managers_are_understood() {
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/kubepods.slice/pod1.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods/besteffort/pod1/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            format!("/system.slice:docker:{ID}"),
            format!("/lxc.payload.outer/system.slice/docker-{ID}.scope/init.scope"),
        ] {
            assert_eq!(in_path(&path), Some(Container::Id(ID.into())), "{path}");
        }
        for (path, name) in [
            ("/lxc.payload.web/system.slice/cron.service", "web"),
            ("/lxc/web", "web"),
            ("/machine.slice/systemd-nspawn@deb-12.service/payload", "deb-12"),
            ("/machine.slice/machine-my\\x2dbox.scope/payload", "my-box"),
        ] {
            assert_eq!(in_path(path), Some(Container::Name(name.into())), "{path}");
        }
        for path in [
            "/",
            "/system.slice/cron.service",
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope",
            "/user.slice/user-1000.slice",
            &format!("/machine.slice/libpod-conmon-{ID}.scope"),
        ] {
            assert_eq!(in_path(path), None, "{path}");
        }
        assert_eq!(unescaped("a\\x2db\\xzz\\x"), "a-b\\xzz\\x");
    }

    #[test]
    fn names_come_from_the_managers_files() {
        let other = ID.replace('0', "9");
        let cases = [
            (format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name":"/web"}"#, "web"),
            (
                "var/lib/containers/storage/overlay-containers/containers.json".into(),
                &format!(r#"[{{"id":"{other}","names":["x"]}},{{"id":"{ID}","names":["db"]}}]"#),
                "db",
            ),
            (
                "home/me/.local/share/containers/storage/overlay-containers/containers.json".into(),
                &format!(r#"[{{"id":"{ID}","names":["mine"]}}]"#),
                "mine",
            ),
            (
                format!("run/containers/storage/overlay-containers/{ID}/userdata/config.json"),
                r#"{"annotations":{"io.kubernetes.container.name":"c","io.kubernetes.pod.name":"p"}}"#,
                "p/c",
            ),
            (
                format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json"),
                r#"{"annotations":{"io.kubernetes.cri.container-name":"c",
                    "io.kubernetes.cri.sandbox-name":"p","io.kubernetes.cri.sandbox-namespace":"n"}}"#,
                "n/p/c",
            ),
        ];
        for (path, text, name) in cases {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("etc")).unwrap();
            fs::write(root.path().join("etc/passwd"), "me:x:1000:1000::/home/me:/bin/sh\n")
                .unwrap();
            assert_eq!(name_of(root.path(), ID, Some(1000)), None);
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            assert_eq!(name_of(root.path(), ID, Some(1000)).as_deref(), Some(name), "{path:?}");
            assert_eq!(name_of(root.path(), &other.replace('1', "2"), None), None);
            fs::write(&path, "no json").unwrap();
            assert_eq!(name_of(root.path(), ID, Some(1000)), None);
        }
    }

    #[test]
    fn a_fifo_among_the_files_of_a_manager_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let storage = root.path().join("var/lib/containers/storage/overlay-containers");
        fs::create_dir_all(&storage).unwrap();
        let fifo = storage.join("containers.json");
        assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(name_of(root.path(), ID, None)));
        let found = done.recv_timeout(std::time::Duration::from_secs(120));
        assert_eq!(found.expect("it waits for the FIFO"), None);
    }
}
