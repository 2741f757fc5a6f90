//! URLs, and names of files in the cache of elfutils' client.

/// Prefix of the names of source files in the cache.
const SOURCE: &str = "source";

/// An absolute path without `.`, `..` and empty parts; `None` if it is not absolute.
pub(super) fn normal(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| format!("/{}", parts.join("/")))
}

/// Name of a source file in the cache of elfutils' client.
pub(super) fn cached_name(path: &str) -> String {
    format!("{SOURCE}{}", path.replace('#', "#_").replace('/', "##"))
}

/// A path in a URL: everything but unreserved characters and `/` is percent-encoded (RFC 3986).
pub(super) fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Target of a redirection, if it is followed: on the same host, or encrypted on another, so that
/// no server can direct requests at other machines in this network.
pub(super) fn redirected(from: &str, location: &str) -> Option<String> {
    let host = |url: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let host = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
        (!host.contains('@') && !host.is_empty()).then_some((scheme.to_ascii_lowercase(), host))
    };
    let (scheme, old) = host(from)?;
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(format!("{scheme}://{old}{location}"));
    }
    let (new_scheme, new) = host(location)?;
    let followed = match new_scheme.as_str() {
        "https" => true,
        "http" => scheme == "http" && new == old,
        _ => false,
    };
    followed.then(|| location.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{cached_name, escaped, normal, redirected};

    #[test]
    fn paths_of_source_files_are_normal_and_escaped() {
        assert_eq!(normal("/a/./b//../c.c").as_deref(), Some("/a/c.c"));
        assert_eq!(normal("/../../etc/x").as_deref(), Some("/etc/x"));
        assert_eq!(
            (normal("a.c"), normal(""), normal("/"), normal("/a/..")),
            (None, None, None, None)
        );
        assert_eq!(escaped("/a b/ü?#%.c"), "/a%20b/%C3%BC%3F%23%25.c");
        assert_eq!(cached_name("/usr/src/a#b.c"), "source##usr##src##a#_b.c");
    }

    #[test]
    fn redirections_lead_to_no_other_host_without_encryption() {
        let to = |from, location| redirected(from, location);
        let here = "http://a.example:80/buildid/x";
        assert_eq!(to(here, "/y").as_deref(), Some("http://a.example:80/y"));
        assert!(to(here, "http://A.example:80/y").is_some());
        assert!(to(here, "https://b.example/y").is_some());
        for location in [
            "http://127.0.0.1/y",
            "http://169.254.169.254/latest",
            "http://a.example/y",
            "file:///etc/passwd",
            "//b.example/y",
            "https://a@b/y",
            "",
            "y",
        ] {
            assert_eq!(to(here, location), None, "{location}");
        }
        assert_eq!(to("https://a.example/x", "http://a.example/x"), None);
    }
}
