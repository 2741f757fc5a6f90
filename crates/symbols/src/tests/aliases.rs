//! Several symbols at one address.

use super::*;

/// As in the C library: of one function, a public name, its weak form, and one for the library's
/// own calls, which is that of the definition.
const LIBRARY: &str = r#"
int definition(int x) __asm__("__GI___lib_work");
__attribute__((noinline, visibility("hidden"))) int definition(int x)
{
    __asm__ volatile(".globl mark\nmark: nop");
    return x * 3;
}
extern int __lib_work(int) __attribute__((alias("__GI___lib_work"), visibility("default")));
extern int work(int) __attribute__((weak, alias("__GI___lib_work"), visibility("default")));
extern int work64(int) __attribute__((weak, alias("__GI___lib_work"), visibility("default")));
"#;

const PROGRAM: &str = r#"
__attribute__((noinline)) int the_real_name(int x)
{
    __asm__ volatile(".globl mark\nmark: nop");
    return x * 3;
}
int zz_public(int) __attribute__((alias("the_real_name")));
int __aa_internal(int) __attribute__((alias("the_real_name")));
int weak_one_with_a_long_name(int) __attribute__((weak, alias("the_real_name")));
int main(int argc, char **argv) { return the_real_name(argc); }
"#;

/// The outermost function at an address, as a profile and as the assembly view have it.
fn names_of(lab: &Lab, binary: &Path, id: &(u64, u64, String), address: u64) -> [String; 2] {
    let mut p = profile(binary, id.clone(), 0, &[address]);
    symbolize(&mut p, &lab.options(), &quiet);
    let shown = names(&p, 0).last().cloned().unwrap_or_default();
    let binary = Binary::find(&binary.to_string_lossy(), "", &lab.options()).unwrap();
    let called = binary.names_at(&[sys::FileAddress(address)], true);
    [shown, called[0].as_ref().map(|found| found.name.clone()).unwrap_or_default()]
}

#[test]
fn aliases_of_a_function_have_one_public_name_from_any_source() {
    let no_debug: &[&str] = &[];
    for (source, flags, expected) in [
        (LIBRARY, &["-shared", "-fPIC"][..], "work"),
        (PROGRAM, no_debug, "the_real_name"),
        (PROGRAM, &["-fwhole-program"], "the_real_name"),
    ] {
        for debug in ["-g0", "-g"] {
            let lab = Lab::new();
            let binary = lab.compile("prog", source, &[flags, &[debug]].concat());
            let address = marks(&binary)("mark") + 1;
            let id = mapping_of(&binary, 0);
            let of = |binary: &Path| names_of(&lab, binary, &id, address);
            let both = [expected, expected];
            assert_eq!(of(&binary), both, "{flags:?} {debug}");
            // Its symbol table is in a separate file, then packed.
            lab.run(
                "sh",
                &[
                    "-ec",
                    "objcopy --only-keep-debug prog prog.debug
                objcopy --strip-all --add-gnu-debuglink=prog.debug prog stripped",
                ],
            );
            assert_eq!(of(&lab.path("stripped")), both, "{flags:?} {debug}, stripped");
            lab.run(
                "sh",
                &[
                    "-ec",
                    "objcopy -S --keep-symbol=__GI___lib_work \
                --keep-symbol=the_real_name --keep-symbol=__aa_internal prog mini; xz -k mini
                objcopy --strip-all --add-section .gnu_debugdata=mini.xz prog packed",
                ],
            );
            assert_eq!(of(&lab.path("packed")), both, "{flags:?} {debug}, packed");
        }
    }
}
