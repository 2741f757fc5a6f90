use super::*;
use crate::MAX_LENGTH;

/// A name in which each argument contains the previous one twice.
fn doubled(times: usize) -> String {
    let mut name = String::from("_Z1fI1AIiiE");
    // The substitutions are: f, A, A<int, int>, B, B<…>, B<…>, …
    let mut last = 2;
    for i in 0..times {
        let inner = substitution(last);
        let class = if i == 0 { "1B".to_owned() } else { substitution(3) };
        name.push_str(&format!("{class}I{inner}{inner}E"));
        last = i + 4;
    }
    name + "Evv"
}

fn substitution(n: usize) -> String {
    let Some(mut n) = n.checked_sub(1) else { return "S_".into() };
    let mut digits = String::from("_");
    loop {
        let digit = char::from_digit((n % 36) as u32, 36).unwrap().to_ascii_uppercase();
        digits.insert(0, digit);
        n /= 36;
        if n == 0 {
            return format!("S{digits}");
        }
    }
}

/// Number of steps of printing a name, and its length.
fn cost(name: &str) -> (usize, usize) {
    let mut parser = Parser::new(name);
    let whole = parser.mangled().unwrap_or_else(|| panic!("{name}"));
    let all = 1 << 24;
    let mut least = 0;
    let mut most = all;
    while least < most {
        let steps = (least + most) / 2;
        match Printer::print(&parser, whole, Detail::Full, steps) {
            Ok(_) => most = steps,
            Err(TooLong) => least = steps + 1,
        }
    }
    assert!(least < all, "{name}");
    (least, name.len())
}

#[test]
fn names_are_written_as_c_plus_plus_filt_does() {
    let cases = [
        (
            "_ZNSt8seed_seqC1IPjEET_S2_",
            "std::seed_seq::seed_seq<unsigned int*>(unsigned int*, unsigned int*)",
        ),
        (
            "_ZN4llvm15AnalysisManagerINS_6ModuleEJEE5clearEv",
            "llvm::AnalysisManager<llvm::Module>::clear()",
        ),
        ("_ZThn168_N3foo3barEv", "non-virtual thunk to foo::bar()"),
        ("_ZTv0_n24_N3foo3barEv", "virtual thunk to foo::bar()"),
        ("_ZTV3foo", "vtable for foo"),
        ("_ZTIPDn", "typeinfo for decltype(nullptr)*"),
        ("_Z1fIJidEEvDpT_", "void f<int, double>(int, double)"),
        ("_Z1fIJidEEvDpPKT_", "void f<int, double>(int const*, double const*)"),
        ("_Z1fIJEEvDpT_", "void f<>()"),
        ("_Z1fPFvPA3_KiE", "f(void (*)(int const (*) [3]))"),
        ("_Z1fMN1A1BEKFivE", "f(int (A::B::*)() const)"),
        ("_ZNO1A1fEOS_", "A::f(A&&) &&"),
        ("_Z1fIRiEvOT_", "void f<int&>(int&)"),
        ("_Z1fIXgtLi1ELi2EEEvv", "void f<((1)>(2))>()"),
        ("_Z1fIXadL_Z1gvEEEvv", "void f<&(g())>()"),
        ("_ZNK1AcvT_IiEEv", "A::operator int<int>() const"),
        ("_ZlsRSoRKSs", "operator<<(std::ostream&, std::string const&)"),
        (
            "_ZNSsC1Ev",
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string()",
        ),
        (
            "_ZZ1fIiEvT_ENKUlT_E_clIdEEDaS1_",
            "auto f<int>(int)::{lambda(auto:1)#1}::operator()<double>(double) const",
        ),
        ("_ZN3foo3barEi.constprop.0", "foo::bar(int)"),
        ("_ZN3foo3barEi@GLIBCXX_3.4", "foo::bar(int)"),
    ];
    for (mangled, readable) in cases {
        assert_eq!(demangle(mangled, Detail::Full).as_deref(), Ok(readable), "{mangled}");
    }
}

#[test]
fn without_parameters_only_the_function_itself_has_none() {
    let cases = [
        ("_Z1fIJidEEvDpT_", "f<int, double>"),
        ("_ZThn168_N3foo3barEv", "non-virtual thunk to foo::bar"),
        ("_ZZN3foo3barEiENKUlvE_clEv", "foo::bar(int)::{lambda()#1}::operator()"),
        ("_ZNK3foo3barEv", "foo::bar"),
    ];
    for (mangled, readable) in cases {
        assert_eq!(demangle(mangled, Detail::Name).as_deref(), Ok(readable), "{mangled}");
    }
}

#[test]
fn other_names_are_refused() {
    for name in [
        "",
        "_Z",
        "_Z!",
        "_ZN3foo",
        "_Z3foov!",
        "_Z9foo",
        "_Z1fS_",
        "_Z1fT_",
        "_Z99999999999999999999a",
    ] {
        assert_eq!(demangle(name, Detail::Full), Err(DemangleError::NotMangled), "{name}");
    }
}

/// With backtracking at each level, such a name would never be finished.
#[test]
fn a_name_is_parsed_in_time_proportional_to_its_length() {
    for times in [10, 100, 1000] {
        let open = format!("_ZNSt6vectorIi{}", "SaIjSt6vectorIi".repeat(times));
        assert_eq!(demangle(&open, Detail::Full), Err(DemangleError::NotMangled));
        let parser = |name: &str| {
            let mut parser = Parser::new(name);
            parser.mangled();
            parser.nodes.len()
        };
        assert!(parser(&open) <= open.len(), "a node for each byte at most");
    }
    let whole = format!("_ZNSt6vectorIi{}{}v", "SaIjSt6vectorIi".repeat(20), "E".repeat(42));
    assert!(
        demangle(&whole, Detail::Full)
            .unwrap()
            .starts_with("void std::vector<int, std::allocator<unsigned")
    );
}

#[test]
fn expansion_is_bounded() {
    assert_eq!(
        demangle(&doubled(1), Detail::Full).as_deref(),
        Ok("void f<A<int, int>, B<A<int, int>, A<int, int> > >()")
    );
    for times in [10, 20, 100, 1000] {
        for detail in [Detail::Full, Detail::Name] {
            assert_eq!(demangle(&doubled(times), detail), Err(DemangleError::TooLong), "{times}");
        }
    }
    // Expansions in expansions.
    let nested = format!("_Z1fIJ{}EEv{}T_{}", "i".repeat(200), "Dp1AI".repeat(5), "E".repeat(5));
    assert!(demangle(&nested, Detail::Full).is_ok_and(|name| name.len() <= MAX_LENGTH));
    let empty = format!("_Z1fIJEJ{}EEvv", "JE".repeat(1000));
    assert_eq!(demangle(&empty, Detail::Full).as_deref(), Ok("void f<>()"));
}

#[test]
fn truncated_names_are_refused() {
    for name in ["_ZNeqCI", "_Z1fIXf", "_ZN1AC", "_Z1fDF16", "_ZN1ACI", "_Z1fLi"] {
        assert_eq!(demangle(name, Detail::Full), Err(DemangleError::NotMangled), "{name}");
    }
    let whole = "_ZN1AIXLi3EEZ1fIJifEEDTcl1gfp_fL0p_EET_EUlvE_E1BCI11CEDp3foo";
    for end in 0..whole.len() {
        let _ = demangle(&whole[..end], Detail::Full);
    }
}

#[test]
fn numbers_that_no_compiler_writes_are_refused() {
    let huge = ["2147483647", "4294967294", "18446744073709551614", "99999999999999999999"];
    for (before, behind) in
        [("_ZUt", "_"), ("_ZUlvE", "_"), ("_Z1fIiEDTfp", "_ET_"), ("_Z1fITL", "__E")]
    {
        for n in huge {
            let name = format!("{before}{n}{behind}");
            assert_eq!(demangle(&name, Detail::Full), Err(DemangleError::NotMangled), "{name}");
        }
    }
}

#[test]
fn deep_names_neither_overflow_the_stack_nor_take_long() {
    for deep in
        ["P", "N", "Z1f", "DTnt", "1AI", "FPF", "St6vectorI", "U1a", "M1A", "Dp", "XL_Z1fI", "Ul"]
    {
        let name = format!("_Z1f{}", deep.repeat(50_000));
        assert_eq!(demangle(&name, Detail::Full), Err(DemangleError::NotMangled), "{deep}");
    }
    let pointers = |n| demangle(&format!("_Z1f{}i", "P".repeat(n)), Detail::Full);
    assert_eq!(pointers(300).unwrap(), format!("f(int{})", "*".repeat(300)));
}

#[test]
fn common_names_are_far_from_the_limits() {
    let names = [
        "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_St3setIiSt4lessIiESaIiEEESt10_Select1stISC_ES8_IS5_ESaISC_EE29_M_get_insert_hint_unique_posESt23_Rb_tree_const_iteratorISC_ERS7_",
        "_ZSt13__adjust_heapIN9__gnu_cxx17__normal_iteratorIPiSt6vectorIiSaIiEEEEliNS0_5__ops15_Iter_less_iterEEvT_T0_S9_T1_T2_",
    ];
    for name in names {
        let (steps, length) = cost(name);
        assert!(steps < length * STEPS.0 / 4, "{steps} steps for {length} bytes: {name}");
    }
}

proptest::proptest! {
    /// Any text made of pieces of mangled names: no panic, no output beyond the limits.
    #[test]
    fn any_name_is_written_within_the_limits(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.iter().map(|&i| PIECES[i]).collect();
        for detail in [Detail::Full, Detail::Name] {
            if let Ok(name) = demangle(&format!("_Z{text}"), detail) {
                proptest::prop_assert!(name.len() <= MAX_LENGTH);
            }
        }
    }
}

const PIECES: [&str; 53] = [
    "N",
    "E",
    "I",
    "J",
    "S_",
    "S0_",
    "S1_",
    "St",
    "Sa",
    "Ss",
    "T_",
    "T0_",
    "Dp",
    "DT",
    "L",
    "X",
    "i",
    "j",
    "v",
    "P",
    "R",
    "O",
    "K",
    "F",
    "M",
    "A3_",
    "1A",
    "3foo",
    "6vector",
    "C1",
    "D0",
    "cv",
    "cl",
    "Z",
    "Ul",
    "Ut",
    "_",
    "0_",
    "B3abi",
    "fp_",
    "fL0p_",
    "fl",
    "pl",
    "sr",
    "sZ",
    "sp",
    "tl",
    "il",
    "CI",
    "eq",
    "f",
    "DF16",
    "18446744073709551614_",
];
