//! Tests: files that were cut off are read with a comment, or refused.

use profile::{Profile, comment};

/// Why a file is incomplete; `None`: it is whole.
fn reason(file: impl AsRef<[u8]>) -> Option<String> {
    let profile: Profile = crate::read(&mut file.as_ref()).unwrap();
    comment::values(&profile, comment::INCOMPLETE).next().map(str::to_owned)
}

/// What is expected of a file that ends in the middle of a line.
const LINE: Option<&str> = Some("its last line has no line end");

#[test]
fn a_text_that_ends_in_a_line_is_incomplete() {
    for whole in [
        "main;work 12\nmain;idle 34\n",
        "app 1/1 1.000000: 5 cpu-clock: \n\t118b work (/app)\n\n",
        "heap profile: 1: 2 [1: 2] @ heapprofile\n1: 2 [1: 2] @ 0x10 0x20\n\nMAPPED_LIBRARIES:\n",
        "goroutine profile: total 1\n1 @ 0x40\n#\t0x40\tmain.main+0x1\tmain.go:3\n",
        "@[\n    main+1\n    work+2\n]: 12\n",
    ] {
        assert_eq!(reason(whole), None, "{whole}");
        assert_eq!(reason(&whole[..whole.trim_end().len()]).as_deref(), LINE, "{whole}");
    }
    // What is left of the last line is no stack.
    assert_eq!(reason("main;work 12\nmain;id").as_deref(), LINE);
}

#[test]
fn a_stack_without_its_end_is_incomplete() {
    let sample = "app 1/1 1.000000: 5 cpu-clock: \n\t118b work (/app)\n\t118f main (/app)\n";
    let end = Some("its last stack has no empty line after it");
    assert_eq!(reason(format!("{sample}\n{sample}")).as_deref(), end);
    assert_eq!(reason(format!("{sample}\n{sample}\n")), None);
    // Without any ends, the end of the file may be one.
    assert_eq!(reason(sample), None);
    let map = "@[\n    main+1\n]: 12\n";
    let count = Some("its last stack has no count");
    assert_eq!(reason(format!("{map}@[\n    work+1\n")).as_deref(), count);
}

#[test]
fn a_callgrind_file_with_less_costs_than_its_sums_is_incomplete() {
    let less = Some("the costs of its lines are less than its sums");
    let lines = "fn=main\n1 5\n2 7\n";
    let file = |sum: u32| format!("version: 1\nevents: Ir\nsummary: {sum}\n{lines}");
    assert_eq!([reason(file(12)), reason(file(11))], [None, None]);
    assert_eq!(reason(file(13)).as_deref(), less);
    let valgrind = format!("version: 1\ncreator: callgrind-3.19.0\nevents: Ir\n{lines}");
    assert_eq!(reason(format!("{valgrind}totals: 12\n")), None);
    assert_eq!(reason(format!("{valgrind}totals: 14\n")).as_deref(), less);
    assert_eq!(reason(&valgrind).as_deref(), Some("the sums at its end are missing"));
    let cut = format!("{}fn=(1", file(20));
    assert_eq!(reason(cut).as_deref(), LINE);
}

#[test]
fn a_cpu_profile_without_the_end_of_its_stacks_is_incomplete() {
    let words: Vec<u8> = [0u64, 3, 0, 10_000, 0, 2, 1, 0x40_0010, 0, 1, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(reason(&words), None);
    let end = Some("the end of its stacks is missing");
    assert_eq!(reason(&words[..8 * 8]).as_deref(), end);
}
