use super::*;

fn function(range: Range<u64>, weights: &[(u64, i64, i64)]) -> Function {
    let weight = |&(at, self_value, total): &(u64, i64, i64)| {
        (at, Weight { offset: FileOffset(at), self_value, total })
    };
    Function { range, weights: weights.iter().map(weight).collect() }
}

fn x86() -> Disassembler {
    Disassembler::for_machine(object::elf::EM_X86_64).unwrap()
}

/// mov (%rdi), %rax; add %rax, %rbx; jne to the start; call; (bad); ret
const CODE: [u8; 15] =
    [0x48, 0x8b, 0x07, 0x48, 0x01, 0xc3, 0x75, 0xf8, 0xe8, 0x00, 0x10, 0x00, 0x00, 0x06, 0xc3];

#[test]
fn values_are_those_of_the_instruction_with_the_address() {
    let function = function(0x100..0x10f, &[(0x100, 1, 1), (0x103, 9, 9), (0x10c, 0, 5)]);
    let mut piece = decode(&mut x86(), &function, &CODE, Limits::default());
    add_values(&mut piece.instructions, &function, true);
    add_jumps(&mut piece);
    let of = |i: &Instruction| (i.address.0, i.self_value, i.total, i.skid);
    let found: Vec<_> = piece.instructions.iter().map(of).collect();
    assert_eq!(
        found,
        [
            (0x100, 1, 1, false),
            // The load before it took the time.
            (0x103, 9, 9, true),
            (0x106, 0, 0, false),
            (0x108, 0, 5, false),
            (0x10d, 0, 0, false),
            (0x10e, 0, 0, false)
        ]
    );
    assert_eq!(piece.jumps, [(2, 0)]);
    assert_eq!(piece.instructions[4].text, None);
    let target = piece.instructions[3].target.as_ref().unwrap();
    assert_eq!(target.address, FileAddress(0x110d));
    add_values(&mut piece.instructions, &function, false);
    assert!(piece.instructions.iter().all(|i| !i.skid));
}

#[test]
fn a_value_is_marked_if_the_instruction_before_takes_longer() {
    let marks = |code: &[u8], values: &[(u64, i64, i64)]| -> Vec<bool> {
        let function = function(0..code.len() as u64, values);
        let mut piece = decode(&mut x86(), &function, code, Limits::default());
        add_values(&mut piece.instructions, &function, true);
        piece.instructions.iter().map(|i| i.skid).collect()
    };
    // mov (%rdi), %rax; imul %rcx, %rax; cmp %rax, %rbx; ret
    let code = [0x48, 0x8b, 0x07, 0x48, 0x0f, 0xaf, 0xc1, 0x48, 0x39, 0xc3, 0xc3];
    let rising = [(0, 1, 1), (3, 5, 5), (7, 8, 8), (10, 9, 9)];
    assert_eq!(marks(&code, &rising), [false, true, true, false]);
    let falling = [(0, 9, 9), (3, 8, 8), (7, 5, 5), (10, 1, 1)];
    assert_eq!(marks(&code, &falling), [false; 4]);
    // addsd %xmm0, %xmm1; mulsd %xmm0, %xmm1; cmp %rax, %rbx
    let code = [0xf2, 0x0f, 0x58, 0xc8, 0xf2, 0x0f, 0x59, 0xc8, 0x48, 0x39, 0xc3];
    assert_eq!(marks(&code, &[(0, 1, 1), (4, 5, 5), (8, 9, 9)]), [false, false, true]);
}

#[test]
fn a_large_function_is_cut_around_its_hottest_address() {
    let code = vec![0x90; 100_000];
    let function = function(0..100_000, &[(10, 1, 1), (70_000, 5, 5)]);
    let limits = Limits { bytes: 1_000, instructions: 100 };
    let piece = decode(&mut x86(), &function, &code, limits);
    assert_eq!(piece.instructions.len(), 100);
    assert_eq!(piece.instructions[0].address.0, 70_000 - 49);
    assert!(containing(&piece.instructions, 70_000).is_some());
    let whole = decode(&mut x86(), &function, &code[..50], limits);
    assert_eq!(whole.instructions.len(), 50);
}

#[test]
fn bytes_that_are_no_code_are_decoded() {
    let function = function(0..4096, &[]);
    for machine in [object::elf::EM_X86_64, object::elf::EM_AARCH64] {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for size in [0, 1, 3, 4095, 4096] {
            let code: Vec<u8> = (0..size).map(|_| random()).collect();
            let mut disassembler = Disassembler::for_machine(machine).unwrap();
            let piece = decode(&mut disassembler, &function, &code, Limits::default());
            let bytes: usize = piece.instructions.iter().map(|i| i.length).sum();
            assert_eq!(bytes, size);
        }
    }
}

#[test]
fn the_function_of_this_test_is_disassembled() {
    let exe = std::env::current_exe().unwrap();
    let options = SymbolOptions::default();
    let name = exe.to_string_lossy();
    let main = symbols::functions::functions(&exe, "main").unwrap().remove(0);
    let weights = [Weight { offset: main.offset, self_value: 1, total: 2 }];
    let request = Request {
        binary: &name,
        build_id: "",
        function: "main",
        end: 0,
        weights: &weights,
        skids: true,
    };
    let found = disassemble(&request, &options, Limits::default()).unwrap();
    assert_eq!((found.pieces.len(), found.left_out), (1, 0));
    let piece = &found.pieces[0];
    assert_eq!(piece.function.end - piece.function.start, main.size);
    assert_eq!((piece.left_out, piece.instructions[0].total), (0, 2));
    assert!(piece.instructions[0].places.iter().any(|place| place.function == "main"));

    let wrong = Request { build_id: "0123456789", ..request.clone() };
    let error = disassemble(&wrong, &options, Limits::default()).unwrap_err();
    assert!(matches!(error, NoCode::NoBinary(Cause::BuildIdDiffers { .. })), "{error:?}");
    let nowhere = [Weight { offset: FileOffset(1), ..weights[0] }];
    let outside = Request { weights: &nowhere, ..request };
    assert_eq!(disassemble(&outside, &options, Limits::default()), Err(NoCode::NoBounds));
}

#[test]
fn a_piece_without_bounds_begins_at_a_sampled_instruction() {
    let request =
        Request { binary: "", build_id: "", function: "", end: 0, weights: &[], skids: true };
    let weights = |list: &[(u64, i64)]| {
        function(0..0, &list.iter().map(|&(at, own)| (at, own, 1)).collect::<Vec<_>>()).weights
    };
    let piece = |request: &Request<'_>, list: &[(u64, i64)]| {
        around::piece(request, FileAddress(0x1000), &weights(list))
    };
    assert_eq!(piece(&request, &[(0x1000, 1)]), Some(0x1000..0x1100));
    assert_eq!(piece(&request, &[(0x1000, 1), (0xfe0, 3)]), Some(0xfe0..0x1100));
    // Callers, and addresses that are far or behind it.
    let others = [(0x1000, 1), (0xfe0, 0), (0xe00, 1), (0x1010, 1)];
    assert_eq!(piece(&request, &others), Some(0x1000..0x1100));
    assert_eq!(piece(&request, &[(0x1000, 0)]), None);
    // The begin of an instruction is unknown.
    assert_eq!(piece(&Request { skids: false, ..request }, &[(0x1000, 1)]), None);
}

#[test]
fn a_piece_ends_at_an_instruction() {
    // The call is cut after two bytes.
    let function = function(0x100..0x10a, &[(0x100, 1, 1)]);
    let mut piece = decode(&mut x86(), &function, &CODE[..10], Limits::default());
    around::end_at_an_instruction(&mut piece);
    assert_eq!(piece.instructions.len(), 3);
    assert_eq!(piece.function, 0x100..0x108);
}
