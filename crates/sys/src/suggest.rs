//! What was meant by a name that does not exist.

/// The name that is meant by one with no more than a third of its letters wrong.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (wrong, near) = names.map(|near| (distance(near, name), near)).min()?;
    (wrong * 3 <= name.chars().count() && !name.is_empty()).then_some(near)
}

/// The names that are meant, the nearest first, at most `most`: those that go on behind a dot
/// (compilers' clones of a function), and those with no more than a third of the letters wrong.
pub fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let allowed = name.chars().count() / 3;
    let wrong = |near: &str| match near.strip_prefix(name) {
        Some(rest) if rest.starts_with('.') => 0,
        _ if near.len().abs_diff(name.len()) > allowed => usize::MAX,
        _ => distance(near, name),
    };
    let mut near: Vec<(usize, &str)> =
        names.map(|near| (wrong(near), near)).filter(|(wrong, _)| *wrong <= allowed).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(most).collect()
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let names = || ["cycles", "branches", "SSL_write", "SSL_write_ex"].into_iter();
        assert_eq!(nearest("cycels", names()), Some("cycles"));
        assert_eq!(nearest("x", names()), None);
        assert_eq!(nearest("", names()), None);
        assert_eq!(similar("SSL_wirte", names(), 5), ["SSL_write"]);
        assert_eq!(similar("SSL_writ", names(), 5), ["SSL_write"]);
        let clones = ["step.constprop.0", "step.cold", "stop", "other"];
        assert_eq!(similar("step", clones.into_iter(), 2), ["step.cold", "step.constprop.0"]);
        assert_eq!(similar("ste", clones.into_iter(), 5), [""; 0]);
    }
}
