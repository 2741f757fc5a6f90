use super::*;
use crate::testing::{functions, mapping};
use crate::{Granularity, Top, TopOptions, View};
use profile::{Builder, Column, LabelSetId};

/// The package of a function of this name and file.
fn package(name: &str, system_name: &str, file: &str, binary: &str) -> Option<String> {
    Texts { name, system_name, file, binary }.package(false).map(Cow::into_owned)
}

#[test]
fn names_state_packages() {
    let cases = [
        // Go
        ("runtime.mallocgc", "", "malloc.go", Some("runtime")),
        ("github.com/x/y.(*T).Do", "", "y.go", Some("github.com/x/y")),
        ("gopkg.in/yaml%2ev3.Unmarshal", "", "yaml.go", Some("gopkg.in/yaml.v3")),
        ("slices.Sort[go.shape.[]a/b.T]", "", "sort.go", Some("slices")),
        ("main.main.func1", "", "main.go", Some("main")),
        ("type..eq.a/b.T", "", "x.go", None),
        ("a/b.(*T).Do", "", "", Some("a/b")),
        ("foo.part.0", "", "", None),
        // Rust
        ("alloc::vec::Vec<T>::push", "", "/rustc/1/library/alloc/src/vec/mod.rs", Some("alloc")),
        ("app[0a1b]::main", "_RNvC3app4main", "", Some("app")),
        ("<a::T as core::fmt::Debug>::fmt", "", "src/a.rs", Some("a")),
        ("<alloc::string::String as a::Tr>::f", "", "src/a.rs", Some("a")),
        ("<alloc::string::String as core::fmt::Debug>::fmt", "", "x.rs", Some("alloc")),
        ("<u8 as core::fmt::Debug>::fmt", "", "x.rs", Some("core")),
        ("<a::X as b::Y>::f", "", "x.rs", None),
        ("<alloc::string::String as core::convert::From<a::X>>::from", "", "x.rs", None),
        (
            "<a::X as b::Y>::f",
            "",
            "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-json-1.0.2/src/x.rs",
            Some("serde-json"),
        ),
        ("<alloc::vec::Vec<T>>::push", "_RX", "", Some("alloc")),
        ("main", "", "main.rs", None),
        // C++
        ("std::vector<int, std::allocator<int>>::push_back(int&&)", "_ZN", "", Some("std")),
        ("void ns::f<a::b>(a::b const&)", "_ZN", "", Some("ns")),
        ("std::string ns::A<int>::f() const", "", "a.cc", Some("ns")),
        ("(anonymous namespace)::run(int)", "", "a.cc", Some("(anonymous namespace)")),
        ("ns::A::operator()(int) const", "", "a.cc", Some("ns")),
        ("ns::A::operator<(ns::A const&)", "", "a.cc", Some("ns")),
        ("ns::A::operator int() const", "", "a.cc", Some("ns")),
        ("ns::f(int)::{lambda(int)#1}::operator()(int) const", "", "a.cc", Some("ns")),
        ("operator new(unsigned long)", "_Znwm", "", None),
        ("std::__cxx11::basic_string<char>::append[abi:cxx11](char)", "_ZN", "", Some("std")),
        ("llvm::Value::get()", "", "", None),
        ("main", "", "main.cc", None),
        // Java
        ("java.util.HashMap.get", "", "HashMap.java", Some("java.util")),
        ("Main.run", "", "Main.java", None),
        ("Ljava/util/HashMap;::get", "", "", Some("java/util")),
        // Python
        ("decode", "", "/usr/lib/python3.11/json/decoder.py", Some("json")),
        ("join", "", "/usr/lib/python3.11/posixpath.py", Some("posixpath")),
        ("get", "", "/x/lib/python3.9/site-packages/requests/api.py", Some("requests")),
        ("main", "", "/home/u/app.py", Some("/home/u/app.py")),
        ("py::main:/home/u/app.py", "", "", Some("/home/u/app.py")),
        // Others
        ("memcpy", "", "memcpy.c", None),
        ("JS:*fib /x.js:1", "", "", None),
        ("", "", "", None),
        ("::", "_Z", "", None),
        ("<", "_R", "", None),
        (">>>::(", "_Z", "x.cc", None),
    ];
    for (name, system_name, file, expected) in cases {
        assert_eq!(package(name, system_name, file, "").as_deref(), expected, "{name} {file}");
    }
    let of_map = |name| package(name, "", "", "/tmp/perf-1.map");
    assert_eq!(of_map("int a.b.C.run(int)").as_deref(), Some("a.b"));
    assert_eq!(of_map("a.b.C::run").as_deref(), Some("a.b"));
    assert_eq!(of_map("int C.run(a.B)"), None);
    assert_eq!(of_map("Interpreter"), None);
    assert_eq!(of_map("LazyCompile:*f /a.b/x.js:1"), None);
    assert_eq!(package("a::b", "", "x.cc", "[kernel.kallsyms]"), None);
}

#[test]
fn rows_are_packages_and_functions_without_one() {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    let app = mapping(&mut b, "/app", 0);
    let lines: [&[(&str, &str, i64)]; 4] = [
        &[("a/b.f", "b.go", 1)],
        &[("a/b.g", "b.go", 2), ("a/c.h", "c.go", 3)],
        &[("runtime.memmove", "memmove.s", 9)],
        &[("crosscall", "x.c", 4)],
    ];
    let [f, g, memmove, c] =
        [0, 1, 2, 3].map(|at| functions(&mut b, Some(app), 0x10 + at as u64, lines[at]));
    for (stack, value) in [(vec![f, g, c], 5), (vec![memmove, f, f], 3), (vec![c], 2)] {
        b.add(&stack, LabelSetId::EMPTY, 0, &[(Column(0), value)]);
    }
    let mut p = b.finish(None);
    name_packages(&mut p);
    let view = View::new(&p, 0, Granularity::PACKAGES);
    let top = Top::new(&view, &TopOptions::default());
    let rows = top.rows.iter().map(|row| {
        (view.frames.get(row.frame).display(&p).into_owned(), row.self_value, row.total)
    });
    let expected = [("a/b", 5, 8), ("runtime", 3, 3), ("crosscall", 2, 7), ("a/c", 0, 5)]
        .map(|(n, s, t)| (n.to_owned(), s, t));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn long_and_odd_names_are_read_in_one_pass() {
    for name in
        ["a::".repeat(40_000), "<".repeat(100_000), "(".repeat(100_000), "é:".repeat(50_000)]
    {
        for file in ["x.rs", "x.cc", "x.go", "x.java", "x.py"] {
            package(&name, "_Z", file, "");
        }
    }
}

#[test]
fn functions_that_share_a_long_name_cost_no_more_than_one() {
    let mut b = profile::Builder::new(&[("samples", "count")]);
    let long = format!("app::f<{}>", "x".repeat(60_000));
    let name = b.profile.strings.intern(&long);
    let longer = b.profile.strings.intern(&"y::".repeat(100_000));
    let filename = b.profile.strings.intern("a.cc");
    // One by one, the names would be 60 GB to examine.
    for number in 0..1_000_000 {
        let start_line = i64::from(number);
        b.profile.functions.push(Function { name, system_name: name, filename, start_line });
    }
    b.profile.functions.push(Function { name: longer, filename, ..Function::default() });
    let mut profile = b.finish(None);
    name_packages(&mut profile);
    let named = |function: &Function| profile.str(function.name) == "app";
    assert_eq!(profile.functions.iter().filter(|function| named(function)).count(), 1_000_000);
    assert_eq!(profile.functions[1_000_000].name, longer);
}
