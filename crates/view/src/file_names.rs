//! Names of source files as pprof shows them, so that one file has one name.

use profile::{Profile, StrId};

/// Prefixes that pprof removes: that of builds whose directory is not recorded, of Bazel.
const BUILD_DIRECTORIES: [&str; 2] = ["/proc/self/cwd/./", "/proc/self/cwd/"];

/// Writes the names of source files without `.`, `..` and double slashes, where that is possible by
/// text alone: files of one source directory are often named by way of several others.
pub fn clean_file_names(profile: &mut Profile) {
    let Profile { functions, strings, .. } = profile;
    let mut cleaned: Vec<Option<StrId>> = vec![None; strings.len()];
    for function in functions {
        let id = function.filename;
        function.filename =
            *cleaned[id.0 as usize].get_or_insert_with(|| match shown(strings.get(id)) {
                Some(name) => strings.intern(&name),
                None => id,
            });
    }
}

/// The name of a file as pprof shows it; `None`: as it is.
fn shown(name: &str) -> Option<String> {
    let below = BUILD_DIRECTORIES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let name = below.unwrap_or(name);
    let is_clean = |name: &str| {
        let mut parts = name.strip_prefix('/').unwrap_or(name).split('/');
        name.is_empty() || name == "/" || parts.all(|part| !matches!(part, "" | "." | ".."))
    };
    if is_clean(name) { below.map(str::to_owned) } else { Some(clean(name)) }
}

/// The shortest path that is equal by text alone, as Go's `path.Clean`.
fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            // There is nothing above the root.
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    match (is_absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::functions;
    use crate::{Granularity, Top, TopOptions, View};
    use profile::{Builder, LabelSetId};

    #[test]
    fn paths_are_cleaned_as_by_go() {
        for (path, expected) in [
            ("abc", "abc"),
            ("abc/def", "abc/def"),
            ("a/b/c", "a/b/c"),
            (".", "."),
            ("..", ".."),
            ("../..", "../.."),
            ("../../abc", "../../abc"),
            ("/abc", "/abc"),
            ("/", "/"),
            ("abc/", "abc"),
            ("/abc/", "/abc"),
            ("abc/./def//ghi/", "abc/def/ghi"),
            ("//abc", "/abc"),
            ("abc//def", "abc/def"),
            ("/./abc/def", "/abc/def"),
            ("abc/def/ghi/../jkl", "abc/def/jkl"),
            ("abc/def/../ghi/../jkl", "abc/jkl"),
            ("abc/def/..", "abc"),
            ("abc/def/../..", "."),
            ("/abc/def/../..", "/"),
            ("abc/def/../../..", ".."),
            ("/abc/def/../../..", "/"),
            ("abc/def/../../../ghi/jkl/../../../mno", "../../mno"),
            ("abc/./../def", "def"),
            ("abc//./../def", "def"),
            ("abc/../../././../def", "../../def"),
            ("./posix/../sysdeps/unix/syscall-template.S", "sysdeps/unix/syscall-template.S"),
            ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
            ("/proc/self/cwd/./base/x.cc", "base/x.cc"),
            ("/proc/self/cwd/base/../x.cc", "x.cc"),
            ("", ""),
        ] {
            assert_eq!(shown(path).as_deref().unwrap_or(path), expected, "{path}");
        }
    }

    #[test]
    fn a_file_with_several_names_is_one_row() {
        let mut b = Builder::new(&[("samples", "count")]);
        for (address, directory) in [(1, "./posix"), (2, "./misc"), (3, "nptl/./.")] {
            let file = format!("{directory}/../sysdeps/syscall-template.S");
            let location = functions(&mut b, None, address, &[("call", &file, 5)]);
            b.add(&[location], LabelSetId::EMPTY, 1, &[]);
        }
        let mut p = b.finish(None);
        clean_file_names(&mut p);
        for granularity in [Granularity::FILES, Granularity::FILE_FUNCTIONS, Granularity::LINES] {
            let view = View::new(&p, 0, granularity);
            let top = Top::new(&view, &TopOptions::default());
            assert_eq!(top.rows.len(), 1, "{granularity:?}");
            let frame = view.frames.get(top.rows[0].frame);
            assert_eq!(p.str(frame.file), "sysdeps/syscall-template.S");
        }
    }
}
