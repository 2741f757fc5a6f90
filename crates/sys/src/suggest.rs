//! Suggestions for misspelled names ("did you mean"). Two letters in the wrong order are one
//! difference.

use strsim::osa_distance;

/// The nearest of `names`, if no more than a third of its letters differ.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (wrong, near) = names.map(|near| (osa_distance(near, name), near)).min()?;
    (wrong * 3 <= name.chars().count() && !name.is_empty()).then_some(near)
}

/// Suggestions, the nearest first, at most `most`: names with a suffix after a dot (compilers'
/// clones of a function), and names of which no more than a third of the letters differ.
pub fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let allowed = name.chars().count() / 3;
    let wrong = |near: &str| match near.strip_prefix(name) {
        Some(rest) if rest.starts_with('.') => 0,
        _ if near.len().abs_diff(name.len()) > allowed => usize::MAX,
        _ => osa_distance(near, name),
    };
    let mut near: Vec<(usize, &str)> =
        names.map(|near| (wrong(near), near)).filter(|(wrong, _)| *wrong <= allowed).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        let names = || ["cycles", "branches", "SSL_write", "SSL_write_ex"].into_iter();
        assert_eq!(nearest("cycels", names()), Some("cycles"));
        assert_eq!(nearest("pdi", ["tid", "pid"].into_iter()), Some("pid"));
        assert_eq!(similar("ngnix", ["nginx"].into_iter(), 5), ["nginx"]);
        assert_eq!(nearest("x", names()), None);
        assert_eq!(nearest("", names()), None);
        assert_eq!(similar("SSL_wirte", names(), 5), ["SSL_write"]);
        assert_eq!(similar("SSL_writ", names(), 5), ["SSL_write"]);
        let clones = ["step.constprop.0", "step.cold", "stop", "other"];
        assert_eq!(similar("step", clones.into_iter(), 2), ["step.cold", "step.constprop.0"]);
        assert_eq!(similar("ste", clones.into_iter(), 5), [""; 0]);
    }
}
