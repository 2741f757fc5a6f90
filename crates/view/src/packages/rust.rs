//! Crates of Rust functions.

use std::borrow::Cow;

/// The crates of the standard library, each of which uses those before it only.
const STANDARD: [&str; 3] = ["core", "alloc", "std"];

/// True for the mangled names of Rust.
pub(super) fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_ZN") && name.contains("17h") && name.ends_with('E')
}

/// The crate of a function: the first part of its path, else that of its source file, else the only
/// crate that may implement this trait for this type.
pub(super) fn package<'p>(name: &'p str, file: &'p str) -> Option<Cow<'p, str>> {
    let path = first_part(name);
    let package = match name.strip_prefix('<') {
        None => path,
        Some(_) => source_crate(file).or_else(|| implementing_crate(name)),
    };
    package.map(Cow::Borrowed)
}

/// The crate at the begin of a path: `core` of `core::ptr::read`, `app` of `app[4a5b]::main`.
fn first_part(path: &str) -> Option<&str> {
    let end = path.find("::")?;
    let name = &path[..end];
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_word.then_some(name)
}

/// The crate whose source file this is: of the standard library, or of a registry.
fn source_crate(file: &str) -> Option<&str> {
    if file.starts_with("/rustc/")
        && let Some((_, path)) = file.split_once("/library/")
    {
        return path.split('/').next();
    }
    let (_, path) = file.split_once("/registry/src/")?;
    let directory = path.split('/').nth(1)?;
    let (name, version) = directory.rsplit_once('-')?;
    version.starts_with(|c: char| c.is_ascii_digit()).then_some(name)
}

/// The crate of `<A as B>::f`, or of `<A>::f`: that of A or of B, since no other may implement B for
/// A. A crate of the standard library cannot be the one that implements for a type, or a trait, of a
/// crate that uses it. `None` if both are possible.
fn implementing_crate(name: &str) -> Option<&str> {
    let inner = inside(name)?;
    let Some((implementor, implemented)) = inner.split_once(" as ") else {
        return type_crate(inner);
    };
    // Types in brackets may be those of the trait's own parameters: the crate of any of them may be
    // the one.
    if inner.contains('<') {
        return None;
    }
    let implemented = first_part(implemented)?;
    let Some(implementor) = type_crate(implementor) else {
        // A type without a crate is a primitive or a parameter: only the trait's crate is left.
        return Some(implemented);
    };
    let rank = |name: &str| STANDARD.iter().position(|standard| *standard == name);
    match (rank(implementor), rank(implemented)) {
        _ if implementor == implemented => Some(implementor),
        (None, Some(_)) => Some(implementor),
        (Some(_), None) => Some(implemented),
        (Some(a), Some(b)) => Some(if a > b { implementor } else { implemented }),
        (None, None) => None,
    }
}

/// The text between the outermost brackets at the begin of a name.
fn inside(name: &str) -> Option<&str> {
    let mut depth = 0;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            // Not that of `->`.
            '>' if !name[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&name[1..at]);
        }
    }
    None
}

/// The crate of a type's path.
fn type_crate(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('&').trim_start_matches("mut ");
    first_part(text.strip_prefix("dyn ").unwrap_or(text))
}
