//! Styles of function names.

use profile::{Profile, StrId};

use symbols::{demangle, demangle_full};

/// Style of names of C++, Rust, D and OCaml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Mangled, as in the binary.
    None,
    /// Without template arguments.
    Short,
    /// With template arguments.
    Templates,
    /// With template arguments, parameters and hashes.
    Full,
}

/// Writes the names of all functions in this style, if the mangled names are known.
///
/// In the short style, functions that differ only in their template arguments become one.
pub fn restyle(profile: &mut Profile, style: Style) {
    for function in &mut profile.functions {
        let strings = &mut profile.strings;
        let system = strings.get(function.system_name);
        let new = match style {
            Style::None if system.is_empty() => continue,
            Style::None => system.to_owned(),
            Style::Templates => match demangle(system) {
                Some(name) => name,
                None => continue,
            },
            Style::Full => match demangle_full(system) {
                Some(name) => name,
                None => continue,
            },
            Style::Short => {
                let readable = demangle(system);
                let name = strings.get(function.name);
                let new = short(readable.as_deref().unwrap_or(name));
                function.system_name = StrId::EMPTY;
                new
            }
        };
        function.name = strings.intern(&new);
    }
}

/// Operators whose names have angle brackets, the longest first.
const OPERATORS: [&str; 10] = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<"];

/// `name` without the template or generic arguments in it.
pub fn short(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(operator) = operator(&out, rest) {
            out.push_str(&rest[..operator]);
            rest = &rest[operator..];
        }
        // `<T as Trait>::f` and `Class.<init>` are not arguments.
        else if c == '<'
            && takes_arguments(&out)
            && let Some(length) = bracketed(rest)
        {
            // `f::<T>`, `operator<< <T>`
            out.truncate(out.strip_suffix("::").unwrap_or(&out).trim_end().len());
            rest = &rest[length..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Length of the operator at the start of `rest`, if `before` ends with that word.
fn operator(before: &str, rest: &str) -> Option<usize> {
    let before = before.strip_suffix("operator")?;
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let all = OPERATORS.iter().chain(&["()", ">"]);
    all.copied().find(|o| rest.starts_with(o)).map(str::len)
}

fn takes_arguments(before: &str) -> bool {
    let before = before.strip_suffix("::").unwrap_or(before);
    let spaced = before.trim_end();
    before.ends_with(|c: char| c.is_alphanumeric() || "_)]}~$".contains(c))
        || before.ends_with(['*', '&']) && is_conversion(before)
        || OPERATORS.iter().any(|o| spaced.strip_suffix(o).is_some_and(|b| b.ends_with("operator")))
}

/// True if `before` ends with a conversion, such as `V::operator long*`.
fn is_conversion(before: &str) -> bool {
    let Some(at) = before.rfind("operator ") else { return false };
    let word = before[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    !word && !before[at..].contains(['(', ')', ','])
}

/// Length of the text in angle brackets at the start of `text`; `None` if they are not closed.
fn bracketed(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            // `fn(A) -> B`
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = c;
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Function;

    #[test]
    fn short_names_have_no_arguments() {
        let cases = [
            ("std::vector<int, std::allocator<int> >::push_back", "std::vector::push_back"),
            ("std::sort<int*>", "std::sort"),
            ("std::operator<< <std::char_traits<char> >", "std::operator<<"),
            ("foo::operator<", "foo::operator<"),
            ("foo::operator<=><int>", "foo::operator<=>"),
            ("bar<int>::operator->", "bar::operator->"),
            ("std::function<void (int)>::operator()", "std::function::operator()"),
            ("main::{lambda(auto:1)#1}::operator()<int>", "main::{lambda(auto:1)#1}::operator()"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            (
                "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
                "<alloc::vec::Vec as core::ops::Drop>::drop",
            ),
            ("core::iter::Iterator::fold::<u64>", "core::iter::Iterator::fold"),
            ("call<fn(u8) -> u16>", "call"),
            ("java.lang.String.<init>", "java.lang.String.<init>"),
            ("myoperator<int>", "myoperator"),
            ("V::operator long*<long>", "V::operator long*"),
            ("V<int>::operator a::B<c> const&<long, d<e> >", "V::operator a::B const&"),
            ("runtime.mallocgc", "runtime.mallocgc"),
            ("broken<int", "broken<int"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(short(name), expected, "{name}");
        }
    }

    fn styled(style: Style) -> Vec<String> {
        let mut p = Profile::default();
        for (name, system_name) in [
            ("std::sort<int*>", "_ZSt4sortIPiEvT_S1_"),
            ("std::sort<long*>", "_ZSt4sortIPlEvT_S1_"),
            ("main", "main"),
            ("vector<int>", ""),
        ] {
            let name = p.strings.intern(name);
            let system_name = p.strings.intern(system_name);
            p.functions.push(Function { name, system_name, ..Function::default() });
        }
        restyle(&mut p, style);
        p.functions.iter().map(|f| p.str(f.name).to_owned()).collect()
    }

    #[test]
    fn names_are_written_in_the_style() {
        let none = ["_ZSt4sortIPiEvT_S1_", "_ZSt4sortIPlEvT_S1_", "main", "vector<int>"];
        assert_eq!(styled(Style::None), none);
        assert_eq!(styled(Style::Short), ["std::sort", "std::sort", "main", "vector"]);
        let templates = ["std::sort<int*>", "std::sort<long*>", "main", "vector<int>"];
        assert_eq!(styled(Style::Templates), templates);
        let full = styled(Style::Full);
        assert_eq!(full[0], "void std::sort<int*>(int*, int*)");
        assert_eq!(full[2..], ["main", "vector<int>"]);
    }
}
