use super::*;

#[test]
fn a_package_manager_that_hangs_is_ended() {
    let mut shell = Command::new("sh");
    let output =
        output_within(Duration::from_millis(50), shell.args(["-c", "sleep 600 & sleep 600"]));
    assert_eq!(output, "");
    let mut shell = Command::new("sh");
    let output = output_within(Duration::from_secs(60), shell.args(["-c", "echo libc6; exit 1"]));
    assert_eq!(output, "libc6\n");
}

const POLICY: &str = "Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 https://node.example/node_20.x nodistro/main amd64 Packages
     release o=. nodistro,a=nodistro,n=nodistro,l=. nodistro,c=main,b=amd64
     origin node.example
 500 http://mirror.example/debian bookworm/main amd64 Packages
     release v=12.13,o=Debian,a=stable,n=bookworm,l=Debian,c=main,b=amd64
     origin mirror.example
";

const VERSIONS: &str = "nodejs:
  Installed: 20.20.2-1nodesource1
  Candidate: 20.20.2-1nodesource1
  Version table:
 *** 20.20.2-1nodesource1 500
        500 https://node.example/node_20.x nodistro/main amd64 Packages
        100 /var/lib/dpkg/status
     18.20.4+dfsg-1~deb12u1 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
git:
  Installed: 1:2.39.5-0+deb12u2
  Version table:
     1:2.39.5-0+deb12u3 500
        500 http://other.example/debian bookworm/main amd64 Packages
 *** 1:2.39.5-0+deb12u2 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
";

const NODE: &str = "https://node.example/node_20.x nodistro/main amd64 Packages";
const MIRROR: &str = "http://mirror.example/debian bookworm/main amd64 Packages";

#[test]
fn versions_of_the_distribution_are_found_by_apt() {
    assert_eq!(installed_from(VERSIONS), [("nodejs", NODE), ("git", MIRROR)]);
    assert_eq!(distribution_archives(POLICY), FxHashSet::from_iter([MIRROR]));
}

#[test]
fn archives_are_recognized_by_their_release_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nLabel: x\n";
    write("mirror.example_debian_dists_bookworm_InRelease", signed);
    write("other.example_x_dists_stable_Release", "Origin: Other\nLabel: Debian\n");
    let other = "https://other.example/x/ stable/main amd64 Packages";
    let of = |archive| is_distribution(dir.path(), archive);
    assert_eq!([MIRROR, other].map(of), [Some(true), Some(false)]);
    for unknown in [NODE, "", "/var/lib/dpkg/status", "http://mirror.example/debian sid/main"] {
        assert_eq!(of(unknown), None, "{unknown}");
    }
}

#[test]
fn packages_of_other_vendors_are_not_the_distribution_s() {
    let libc = "GNU Libc Maintainers <debian-glibc@lists.debian.org>";
    assert!(looks_distributed("2.36-9+deb12u14", libc));
    assert!(looks_distributed("5:7.0.15-1~deb12u10", "Chris Lamb <lamby@debian.org>"));
    let ubuntu = "Ubuntu Developers <ubuntu-devel-discuss@lists.ubuntu.com>";
    assert!(looks_distributed("2.35-0ubuntu3.8", ubuntu));
    assert!(looks_distributed("1.21.22", "Dpkg Developers <debian-dpkg@lists.debian.org>"));
    let node = "NodeSource Support <support@nodesource.com>";
    assert!(!looks_distributed("20.20.2-1nodesource1", node));
    assert!(!looks_distributed("20.20.2-1", "Someone <a@notdebian.org>"));
    assert!(!looks_distributed("15.6-1.pgdg120+1", "Team <team@tracker.debian.org>"));
}

#[test]
fn files_are_attributed_to_packages_by_dpkg() {
    if Command::new("dpkg-query").arg("--version").output().is_err() {
        return sys::testing::skip("dpkg-query is not installed");
    }
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let found = packages(&["/no/such", "/usr/bin/dpkg", libc, "/bin/*", "-x", "/usr/bin/dpkg "]);
    let dpkg = &found["/usr/bin/dpkg"];
    assert_eq!((dpkg.name.as_str(), dpkg.is_distributed), ("dpkg", true), "{dpkg:?}");
    assert!(!dpkg.version.is_empty() && !dpkg.maintainer.contains('@'), "{dpkg:?}");
    let libc = &found[libc];
    assert_eq!((libc.name.as_str(), libc.is_distributed), ("libc6", true), "{libc:?}");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(packages(&["[vdso]", "//anon", ""]).is_empty());
}

const DEBIAN: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";

/// The repository of debug packages of a machine with these files in `/etc/apt`.
fn archive(os_release: &str, apt: &[(&str, &str)]) -> Archive {
    let root = tempfile::tempdir().unwrap();
    let etc = root.path().join("etc");
    std::fs::create_dir_all(etc.join("apt/sources.list.d")).unwrap();
    std::fs::write(etc.join("os-release"), os_release).unwrap();
    for (name, text) in apt {
        std::fs::write(etc.join("apt").join(name), text).unwrap();
    }
    Distribution::below(root.path(), "").archive
}

#[test]
fn debug_packages_of_debian_come_from_the_mirror_in_use() {
    let add = |before: &str| {
        Archive::Add(format!(
            "printf 'deb {before}/debian-debug %s main\\n' bookworm-debug \
                 bookworm-proposed-updates-debug >> /etc/apt/sources.list.d/debug.list && \
                 apt-get update"
        ))
    };
    let line = "# deb http://old.example/debian bookworm main\n\
                    deb-src http://src.example/debian bookworm main\n\
                    deb http://security.example/debian-security bookworm-security main\n\
                    deb [arch=amd64 signed-by=/usr/share/keyrings/d.gpg] \
                    https://mirror.example/pub/debian/ bookworm main contrib # near\n";
    assert_eq!(
        archive(DEBIAN, &[("sources.list", line)]),
        add("[signed-by=/usr/share/keyrings/d.gpg] https://mirror.example/pub")
    );
    let stanzas = "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\n\
                       Suites: bookworm\nComponents: main\n\n\
                       Types: deb deb-src\n# a remark\nURIs: http://mirror.example/debian\n\
                       Suites: bookworm\n bookworm-updates\nComponents: main\n";
    assert_eq!(
        archive(DEBIAN, &[("sources.list.d/debian.sources", stanzas)]),
        add("http://mirror.example")
    );
}

#[test]
fn a_repository_whose_address_does_not_follow_is_not_made_up() {
    let of = |os_release: &str, line: &str| archive(os_release, &[("sources.list", line)]);
    let unknown = [
        (DEBIAN, ""),
        (DEBIAN, "deb http://mirror.example/debian trixie main\n"),
        (DEBIAN, "deb http://mirror.example/debian bookworm contrib\n"),
        (DEBIAN, "deb http://mirror.example/archive/debian/20250520T000000Z bookworm main\n"),
        (DEBIAN, "deb cdrom:[Debian]/debian bookworm main\n"),
        (DEBIAN, "deb http://mirror.example/$(reboot)/debian bookworm main\n"),
        ("ID=ubuntu\nVERSION_CODENAME=noble\n", "deb http://m.example/ubuntu noble main\n"),
        ("ID=debian\nVERSION_CODENAME=\"x; rm -rf\"\n", "deb http://m.example/debian x main\n"),
        ("", "deb http://m.example/debian bookworm main\n"),
    ];
    for (os_release, line) in unknown {
        assert_eq!(of(os_release, line), Archive::Unknown, "{os_release} {line}");
    }
}

#[test]
fn a_repository_that_apt_has_is_not_added() {
    let old = "deb http://mirror.example/debian-debug bookworm-debug main\n";
    let enabled = [
        ("sources.list.d/debug.list", old),
        ("sources.list", "deb http://ddebs.example noble main restricted\n"),
        (
            "sources.list.d/x.sources",
            "Types: deb\nURIs: http://x.example/debian\nSuites: bookworm bookworm-debug\n",
        ),
    ];
    for (name, text) in enabled {
        assert_eq!(archive(DEBIAN, &[(name, text)]), Archive::Enabled, "{text}");
    }
    for (name, text) in [("sources.list.d/x.list.save", old), ("sources.list", "# deb x y-debug")] {
        assert_eq!(archive(DEBIAN, &[(name, text)]), Archive::Unknown, "{text}");
    }
}

#[test]
fn servers_are_those_that_the_machine_is_configured_for() {
    let root = tempfile::tempdir().unwrap();
    let servers = |urls: &str| Distribution::below(root.path(), urls).servers;
    assert_eq!(servers(""), None, "there is no configuration");
    assert_eq!(servers("https://own.example"), Some(Servers::Environment));
    let lists = root.path().join("etc/debuginfod");
    let scripts = root.path().join("etc/profile.d");
    std::fs::create_dir_all(&scripts).unwrap();
    std::fs::create_dir_all(&lists).unwrap();
    let script = "# DEBUGINFOD_URLS=\"https://old.example\"\n\
                      DEBUGINFOD_URLS=\"https://script.example/ \"\n";
    std::fs::write(scripts.join("debuginfod.sh"), script).unwrap();
    let url = |url: &str| Some(Servers::Url(url.to_owned()));
    assert_eq!(servers(""), url("https://script.example/"));
    let list = "# a remark\nima:enforcing https://$(x).example https://list.example ima:ignore\n";
    std::fs::write(lists.join("b.urls"), list).unwrap();
    std::fs::write(lists.join("a.txt"), "https://no.example").unwrap();
    assert_eq!(servers("  "), url("https://list.example"));
    assert_eq!(servers("https://own.example"), Some(Servers::Environment));
}
