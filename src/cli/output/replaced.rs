//! The files that a new one may replace: those of its kind, so that a slip in a command line does not
//! cost a source file or a recording.

use std::io::{ErrorKind, Read};
use std::path::Path;

use formats::{Format, HEAD};
use sys::{foreign, os};

/// What is written into a file.
#[derive(Clone, Copy)]
pub enum Written {
    /// A picture.
    Svg,
    /// A call graph for Graphviz.
    Dot,
    /// An answer as JSON.
    Json,
    /// A profile in pprof format, which keeps the file that it replaces under another name.
    Recording,
    /// A profile in a format.
    Profile(&'static dyn Format),
}

impl Written {
    /// Ends of the names of such files, whatever these contain; a profile is replaced only by one of
    /// its format.
    fn extensions(self) -> &'static [&'static str] {
        match self {
            Written::Svg => &["svg"],
            Written::Dot => &["dot", "gv"],
            Written::Json => &["json"],
            Written::Recording => formats::pprof::Pprof.extensions(),
            Written::Profile(_) => &[],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Written::Svg => "a picture (SVG)",
            Written::Dot => "a graph (DOT)",
            Written::Json => "JSON",
            Written::Recording => "a profile",
            Written::Profile(format) if format.name() == formats::pprof::NAME => "a profile",
            Written::Profile(format) => format.title(),
        }
    }

    /// True if a file that begins with `head` and has the format `found` is of this kind.
    fn is_in(self, head: &[u8], found: Option<&dyn Format>, name: &Path) -> bool {
        let text = head.trim_ascii_start();
        let has = |format: &dyn Format| found.is_some_and(|found| format.name() == found.name());
        match self {
            Written::Recording => has(&formats::pprof::Pprof),
            // The contents of a text may not show its format, as collapsed stacks of one frame each.
            Written::Profile(format) if found.is_none() && format.is_text() => {
                formats::format_of_name(name).is_some_and(|named| named.name() == format.name())
            }
            Written::Profile(format) => has(format),
            _ if found.is_some() => false,
            Written::Svg => head.windows(4).any(|bytes| bytes == b"<svg"),
            Written::Dot => {
                ["digraph", "graph", "strict"].iter().any(|word| text.starts_with(word.as_bytes()))
            }
            Written::Json => text.starts_with(b"{"),
        }
    }
}

/// Fails if `path` is a file of another kind than the one that is to be written.
///
/// # Errors
///
/// One line with the kind that the file has.
pub fn check(path: &Path, written: Written) -> anyhow::Result<()> {
    if path == Path::new("-") || !path.metadata().is_ok_and(|m| m.is_file() && m.len() > 0) {
        return Ok(());
    }
    let name = path.to_string_lossy().to_ascii_lowercase();
    let ends_with =
        |extension: &&str| name.strip_suffix(*extension).is_some_and(|stem| stem.ends_with('.'));
    if written.extensions().iter().any(ends_with) {
        return Ok(());
    }
    let mut head = Vec::new();
    let read =
        foreign::open_named(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    match read {
        Ok(_) => {}
        // It is gone, or no regular file now.
        Err(error) if error.kind() == ErrorKind::NotFound || foreign::is_refused(&error) => {
            return Ok(());
        }
        Err(error) => anyhow::bail!(
            "will not replace {}, which cannot be read: {}; choose another name",
            path.display(),
            os::describe(&error)
        ),
    }
    let found = formats::format_of_head(&head);
    if written.is_in(&head, found, path) {
        return Ok(());
    }
    let format = found.map_or(String::new(), |found| format!(" ({})", found.title()));
    anyhow::bail!(
        "will not replace {} by {}: it has another format{format}; choose another name",
        path.display(),
        written.title()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLLAPSED: &[u8] = b"main;work 3\n";
    const SOURCE: &[u8] = b"fn main() {}\n";
    const SVG: &[u8] = b"<?xml version=\"1.0\"?>\n<!-- by prof -->\n<svg>";

    /// The kinds of file that may replace one.
    fn allowed(name: &str, content: &[u8]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        let collapsed = formats::written().find(|f| f.name() == "collapsed").unwrap();
        let kinds = [
            ('s', Written::Svg),
            ('d', Written::Dot),
            ('j', Written::Json),
            ('c', Written::Profile(collapsed)),
            ('p', Written::Profile(&formats::pprof::Pprof)),
            ('r', Written::Recording),
        ];
        kinds.into_iter().filter(|(_, kind)| check(&path, *kind).is_ok()).map(|(c, _)| c).collect()
    }

    #[test]
    fn files_are_replaced_by_those_of_their_kind() {
        for (name, content, kinds) in [
            ("x.py", SOURCE, ""),
            ("x.py", b"", "sdjcpr"),
            ("x.svg", SOURCE, "s"),
            ("x", SVG, "s"),
            ("x", b"digraph {\n", "d"),
            ("x.gv", SOURCE, "d"),
            ("x", b"{\"a\": 1}\n", "j"),
            ("x.json", SVG, "sj"),
            ("x", COLLAPSED, "c"),
            ("x.pb.gz", COLLAPSED, "cr"),
            ("x.folded", b"main 4\n", "c"),
            ("x.py", b"main 4\n", ""),
            ("X.SVG", SOURCE, "s"),
            ("x", b"strict digraph {\n", "d"),
            ("x.pb.gz", SOURCE, "r"),
        ] {
            assert_eq!(allowed(name, content), kinds, "{name}: {}", content.escape_ascii());
        }
        let mut profile = Vec::new();
        let builder = profile::Builder::new(&[("cpu", "nanoseconds")]);
        formats::pprof::write(&builder.finish(None), &mut profile).unwrap();
        assert_eq!(allowed("x", &profile), "pr");
        check(Path::new("/dev/null"), Written::Svg).unwrap();
        check(Path::new("-"), Written::Svg).unwrap();
    }
}
