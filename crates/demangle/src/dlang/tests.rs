//! Names of Phobos, and those of old compilers, with what `c++filt -s dlang` prints.

use super::*;
use proptest::prelude::*;

#[test]
fn names_are_as_in_the_source() {
    // (mangled, demangled, with parameters)
    let cases = [
        ("_Dmain", "D main", "D main"),
        (
            "_D5dlang__T4RingTmVii64ZQn4fillMFNaNbNiNfmZv",
            "dlang.Ring!(ulong, 64).Ring.fill",
            "dlang.Ring!(ulong, 64).Ring.fill(ulong)",
        ),
        ("_D5dlang6Worker3runMFdZv", "dlang.Worker.run", "dlang.Worker.run(double)"),
        ("_D5dlang6Worker7__ClassZ", "ClassInfo for dlang.Worker", "ClassInfo for dlang.Worker"),
        ("_D1a1B6__ctorMFiZC1a1B", "a.B.this", "a.B.this(int)"),
        ("_D1a1B6__dtorMFZv", "a.B.~this", "a.B.~this()"),
        ("_D1a1B1fMxFZi", "a.B.f", "a.B.f() const"),
        (
            "_D1a1fFAyaHiAaPFNaiZvDFZiZv",
            "a.f",
            "a.f(immutable(char)[], char[][int], void(int) pure function, int() delegate)",
        ),
        (
            "_D1a1fFKiJlLdMNkPvYv",
            "a.f",
            "a.f(ref int, out long, lazy double, scope return void*, ...)",
        ),
        ("_D1a1fFNbNkMPvkZQe", "a.f", "a.f(return scope void*, uint)"),
        ("_D1a1fFG3iXv", "a.f", "a.f(int[3]...)"),
        ("_D1a__T1fVAyaa3_61220aZ1fFZv", "a.f!(\"a\"\\n\").f", "a.f!(\"a\"\\n\").f()"),
        (
            "_D1a__T1fVbi1Vai65Vki3VlN2VPvnZ1fFZv",
            "a.f!(true, 'A', 3u, -2L, null).f",
            "a.f!(true, 'A', 3u, -2L, null).f()",
        ),
        ("_D1a__T1fVde08P3ZQkFZv", "a.f!(0x0.8p3).f", "a.f!(0x0.8p3).f()"),
        ("_D1a3outFZ5innerMFiZv", "a.out.inner", "a.out().inner(int)"),
        // A clone of the compiler, a method whose type is a reference.
        ("_D1a4testFZ5innerFZv.constprop.0", "a.test.inner", "a.test().inner()"),
        ("_D1a1B6createMFNbDFZvZ4wrapMQk", "a.B.create.wrap", "a.B.create(void() delegate).wrap"),
        // The length of a symbol's name, which begins with a number.
        ("_D1a10__T1fS21bZ1fFZv", "a.f!(b).f", "a.f!(b).f()"),
    ];
    for (name, short, full) in cases {
        assert_eq!(demangle(name, Detail::Name).as_deref(), Ok(short), "{name}");
        assert_eq!(demangle(name, Detail::Full).as_deref(), Ok(full), "{name}");
    }
    for plain in ["_D", "_DYNAMIC", "_D3", "_D3fo", "_D0", "_D3foo", "_D3fooQ", "_D3fooFQbZv"] {
        assert_eq!(demangle(plain, Detail::Full), Err(DemangleError::NotMangled), "{plain}");
    }
}

/// Each reference contains the previous type twice.
#[test]
fn a_name_that_expands_too_far_stays_mangled() {
    let mut name = String::from("_D1fFHii");
    let mut last = name.len() - 3;
    for _ in 0..40 {
        let at = name.len();
        name.push('H');
        for _ in 0..2 {
            name.push('Q');
            name.push_str(&to_base26(name.len() - 1 - last));
        }
        last = at;
    }
    name.push_str("Zv");
    assert_eq!(demangle(&name, Detail::Full), Err(DemangleError::TooLong), "{name}");
    assert_eq!(demangle(&name, Detail::Name), Err(DemangleError::TooLong));
    let deep = format!("_D1fF{}iZv", "P".repeat(100_000));
    assert_eq!(demangle(&deep, Detail::Full), Err(DemangleError::TooLong));
    let deep = format!("_D{}", "__T1aS".repeat(10_000));
    assert!(demangle(&deep, Detail::Full).is_err());
    // Each length may be any part of its digits.
    let many = format!("_D1f{}Z", "__T1aS1111111111".repeat(60));
    assert!(demangle(&many, Detail::Full).is_err());
}

fn to_base26(mut n: usize) -> String {
    let mut digits = vec![b'a' + (n % 26) as u8];
    n /= 26;
    while n > 0 {
        digits.insert(0, b'A' + (n % 26) as u8);
        n /= 26;
    }
    String::from_utf8(digits).unwrap()
}

proptest! {
    #[test]
    fn any_text_takes_bounded_time(text in "_D[0-9]{1,2}[a-zA-Z0-9_]{0,400}") {
        if let Ok(name) = demangle(&text, Detail::Full) {
            prop_assert!(name.len() <= MAX_LENGTH);
        }
    }

    #[test]
    fn mixed_parts_take_bounded_time(
        parts in proptest::collection::vec("1a|__T1a|S|T|V|H|Q[A-Z]?[b-z]|i|Ai|F|Z|FZ|MF|D|B3|a2_6162|[0-9]", 0..200)
    ) {
        let _ = demangle(&format!("_D1a{}", parts.concat()), Detail::Full);
    }
}
