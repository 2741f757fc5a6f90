use super::*;
use crate::testing::{frames_profile, functions, mapping, names_of};
use profile::Builder;

#[test]
fn inlined_lines_are_frames_and_unknown_frames_stay() {
    let p = frames_profile();
    let frames = Frames::new(&p, Granularity::FUNCTION);
    assert_eq!(names_of(&p, &frames, 0), ["inner", "outer"]);
    assert_eq!(names_of(&p, &frames, 1), ["libx.so+0x1234"]);
    assert_eq!(names_of(&p, &frames, 2), ["0xdead"]);
    assert_eq!(names_of(&p, &frames, 3), ["_mangled"]);
    let inner = frames.get(frames.at(LocationId(0))[0]);
    assert_eq!(inner.binary_name(&p), "app");
}

#[test]
fn granularity_determines_equality() {
    let p = frames_profile();
    let at = |g| Frames::new(&p, g);
    let by_binary = at(Granularity { binary: true, ..Granularity::NONE });
    assert_eq!(by_binary.at(LocationId(0))[0], by_binary.at(LocationId(0))[1]);
    let all = at(Granularity::NONE);
    assert_eq!(all.at(LocationId(0))[0], all.at(LocationId(2))[0]);
    let lines = at(Granularity { line: true, ..Granularity::FUNCTION });
    assert_eq!(lines.get(lines.at(LocationId(0))[0]).place(&p), "src/inner.c:7");
    // The same function at another line is another frame.
    assert_ne!(lines.at(LocationId(0))[0], lines.at(LocationId(4))[0]);
    let functions = at(Granularity::FUNCTION);
    assert_eq!(functions.at(LocationId(0))[0], functions.at(LocationId(4))[0]);
}

#[test]
fn the_order_of_names_is_total() {
    let mut p = Profile::default();
    let [low, high] = ["/usr/bin/env", "/usr/lib/gcc/cc1"].map(|b| p.strings.intern(b));
    let names = ["do_filp_open", "cc1+0x2", "env+0x1", "abc"].map(|n| p.strings.intern(n));
    let id = StrId::EMPTY;
    let name = Name::Any;
    let binary = id;
    let file = id;
    let system_name = id;
    let empty = Frame {
        name,
        binary,
        file,
        system_name,
        line: 0,
        address: 0,
        kernel: false,
        inlined: false,
    };
    let mut all: Vec<Frame> = Vec::new();
    for binary in [low, high] {
        let addresses = [1, 0x10, 2].map(Name::Address);
        let functions = names.map(Name::Function);
        let label = Name::Label(Some(LabelValue::Str(names[0])), names[1]);
        let rest = [label, Name::NoStack, Name::Any];
        let kinds = addresses.into_iter().chain(functions).chain(rest);
        all.extend(kinds.map(|name| Frame { name, binary, ..empty }));
    }
    let less = |a: &Frame, b: &Frame| a.cmp_name(b, &p) == Ordering::Less;
    for a in &all {
        for b in &all {
            assert_eq!(a.cmp_name(b, &p), b.cmp_name(a, &p).reverse());
            assert!(all.iter().all(|c| !(less(a, b) && less(b, c)) || less(a, c)));
        }
    }
}

#[test]
fn addresses_of_the_kernel_are_those_of_the_kernel() {
    let mut b = Builder::new(&[("samples", "count")]);
    let text = mapping(&mut b, "[kernel.kallsyms]", 0xffff_8000_0000_0000);
    let module = mapping(&mut b, "[ext4]", 0xffff_ffff_c000_0000);
    let file = mapping(&mut b, "/lib/modules/6.1/xfs.ko", 0xffff_ffff_c100_0000);
    let unknown = b.location(Some(text), 0xffff_ffff_8226_e639);
    b.location(Some(module), 0xffff_ffff_c000_0123);
    b.location(Some(file), 0xffff_ffff_c100_0123);
    functions(&mut b, Some(text), 0xffff_ffff_8100_0000, &[("_text", "", 0)]);
    let p = b.finish(None);
    let frames = Frames::new(&p, Granularity::ADDRESSES);
    let names: Vec<String> = (0..4).map(|id| names_of(&p, &frames, id)[0].clone()).collect();
    assert_eq!(names, ["0xffffffff8226e639", "0xffffffffc0000123", "xfs.ko+0x123", "_text"]);
    assert_eq!(frames.get(frames.at(unknown)[0]).address, 0xffff_ffff_8226_e639);
    assert_eq!(frames.get(frames.at(LocationId(3))[0]).address, 0xffff_ffff_8100_0000);
    assert!(frames.get(frames.at(unknown)[0]).kernel);
}

#[test]
fn run_time_code_of_several_processes_is_one_binary() {
    let mut b = Builder::new(&[("samples", "count")]);
    for (number, file) in ["/tmp/perf-1.map", "/a/jit-2.dump", "/bin/app"].iter().enumerate() {
        let at = 0x1000 * (number as u64 + 1);
        let m = mapping(&mut b, file, at);
        functions(&mut b, Some(m), at, &[("JS:*hot", "", 0)]);
        b.location(Some(m), at + 1);
    }
    let p = b.finish(None);
    let ids = |granularity| {
        let frames = Frames::new(&p, granularity);
        let ids = (0..6).map(|location| frames.at(LocationId(location))[0]);
        let names = |id| frames.get(id).binary_name(&p).to_owned();
        ids.map(|id| (id, names(id))).collect::<Vec<_>>()
    };
    for granularity in [Granularity::FUNCTION, Granularity { binary: true, ..Granularity::NONE }] {
        let ids = ids(granularity);
        assert_eq!(ids[0], ids[2]);
        assert_eq!(ids[0].1, "[JIT]");
        assert_ne!(ids[0], ids[4]);
    }
    // Addresses of two processes are two places; all of them together are one binary.
    assert_ne!(ids(Granularity::FUNCTION)[1], ids(Granularity::FUNCTION)[3]);
    assert_eq!(ids(Granularity::FUNCTIONS)[1], ids(Granularity::FUNCTIONS)[3]);
}
