//! Demangles the names of OCaml: `caml`, modules and the function with `__` (since OCaml 5.1 `.`)
//! between them, other characters as `$` and two hexadecimal digits, and a number that the compiler
//! adds.

use crate::{DemangleError, Detail, MAX_LENGTH};

/// Demangles a name of OCaml.
///
/// The compiler's number distinguishes equal names in one module; it changes from one build to the
/// next, and is only written with [`Detail::Full`], or where there is no other name (`fun_123`).
///
/// # Errors
///
/// The name is not one of OCaml, or too long.
///
/// ```
/// use bounded_demangle::{Detail, ocaml};
///
/// assert_eq!(ocaml::demangle("camlStdlib__List__map_123", Detail::Name).unwrap(), "Stdlib.List.map");
/// ```
pub fn demangle(name: &str, detail: Detail) -> Result<String, DemangleError> {
    let rest =
        name.strip_prefix("caml").filter(|_| is_mangled(name)).ok_or(DemangleError::NotMangled)?;
    if rest.len() > MAX_LENGTH {
        return Err(DemangleError::TooLong);
    }
    // A version of the symbol.
    let rest = rest.split('@').next().unwrap_or_default();
    let rest = match detail {
        Detail::Full => rest,
        Detail::Name => without_number(rest),
    };
    let bytes = rest.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (byte, length) = match &bytes[at..] {
            // An underscore may also begin or end a name: `Module___name`.
            [b'_', b'_', next, ..] if at > 0 && *next != b'_' => (b'.', 2),
            [b'_', b'_', b'_', ..] if at > 0 && !out.ends_with(b".") => (b'.', 2),
            [b'$', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'$', 1),
            },
            [other, ..] => (*other, 1),
            [] => break,
        };
        out.push(byte);
        at += length;
    }
    String::from_utf8(out).map_err(|_| DemangleError::NotMangled)
}

/// True if `name` looks like the name of a function of an OCaml module; the run-time system's own
/// begin with `caml_`.
pub fn is_mangled(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("caml") else { return false };
    rest.starts_with(|c: char| c.is_ascii_uppercase())
        && (rest.contains("__") || rest.contains('.'))
}

fn without_number(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let function = bare.strip_suffix('_').filter(|_| bare.len() < name.len());
    let is_named = |function: &&str| {
        let last = function.rsplit("__").next().and_then(|last| last.rsplit('.').next());
        last.is_some_and(|last| !last.is_empty() && last != "fun")
    };
    function.filter(is_named).unwrap_or(name)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        // (mangled, demangled, with the compiler's number)
        let cases = [
            ("camlHello__insert_84", "Hello.insert", "Hello.insert_84"),
            ("camlStdlib__List__map_123", "Stdlib.List.map", "Stdlib.List.map_123"),
            ("camlStdlib__$40_197", "Stdlib.@", "Stdlib.@_197"),
            ("camlHello__$2b$2b$2b_90", "Hello.+++", "Hello.+++_90"),
            ("camlHello__fun_174", "Hello.fun_174", "Hello.fun_174"),
            ("camlHello__entry", "Hello.entry", "Hello.entry"),
            ("camlHello__init_aux_135", "Hello.init_aux", "Hello.init_aux_135"),
            ("camlHello.insert_84", "Hello.insert", "Hello.insert_84"),
            ("camlHello__x__12", "Hello.x_", "Hello.x.12"),
            ("camlHello__my_fun_12", "Hello.my_fun", "Hello.my_fun_12"),
            ("camlHello___private_7", "Hello._private", "Hello._private_7"),
            ("camlDune__exe__Main__go_1", "Dune.exe.Main.go", "Dune.exe.Main.go_1"),
            ("camlA__f$27_3", "A.f'", "A.f'_3"),
            ("camlA__f$zz_3", "A.f$zz", "A.f$zz_3"),
        ];
        for (name, short, full) in cases {
            assert_eq!(demangle(name, Detail::Name).as_deref(), Ok(short), "{name}");
            assert_eq!(demangle(name, Detail::Full).as_deref(), Ok(full), "{name}");
        }
        for plain in ["caml_alloc", "caml", "camlp4", "camlHello", "camelCase__x", "caml_curry2"] {
            assert_eq!(demangle(plain, Detail::Name), Err(DemangleError::NotMangled), "{plain}");
        }
        // No text.
        assert_eq!(demangle("camlA__$ff$fe", Detail::Name), Err(DemangleError::NotMangled));
    }
}
