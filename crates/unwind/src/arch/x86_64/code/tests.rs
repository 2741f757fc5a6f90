//! Frames of small functions, and of all functions with reliable unwind information.

use super::cache::CodeCache;
use super::frame::{CodeFrame, SavedAt};
use super::graph::{Extent, Graph};
use crate::AddressKind::{self, Instruction, Return};
use crate::CodeAddress;
use crate::arch::{BP, SP};
use crate::cfi::KnownRegisters;
use crate::code::{Between, File, Functions, Leads, Proof, Text};
use crate::module::Step;
use sys::FileAddress;
use sys::elf::Segment;

mod cost;

const BASE: u64 = 0x1000;

/// f1: push rbp; push rbx; sub 24,rsp; test; je 1f; call f2; add 24,rsp; pop rbx; pop rbp; ret; 1:
/// call f2 (for the last time); int3. f2 at 0x1c: sub 16,rsp; a loop; add 16,rsp; ret. f3 at 0x2d:
/// a frame pointer, rbx and room of any size. f4 at 0x3f: an aligned stack, with the previous stack
/// pointer in its word 48.
const CODE: [u8; 0x58] = [
    0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x74, 0x0c, 0xe8, 0x0d, 0, 0, 0, 0x48, 0x83,
    0xc4, 0x18, 0x5b, 0x5d, 0xc3, 0xe8, 0x01, 0, 0, 0, 0xcc, //
    0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x48, 0x83, 0xc4, 0x10,
    0xc3, //
    0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xfc, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x65, 0xf8, 0x5b,
    0x5d, 0xc3, //
    0x48, 0x89, 0xe0, 0x48, 0x83, 0xec, 0x40, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x89, 0x44, 0x24, 0x30,
    0x31, 0xc0, 0x90, 0x48, 0x8b, 0x64, 0x24, 0x30, 0xc3,
];

const FUNCTIONS: [(u64, u64); 4] = [(0, 0x1b), (0x1c, 0x2d), (0x2d, 0x3f), (0x3f, 0x58)];

struct Fixture {
    segments: Vec<Segment>,
    bytes: Vec<u8>,
    functions: Functions,
    cache: CodeCache,
}

impl Fixture {
    fn new(bytes: &[u8], functions: &[(u64, u64)]) -> Fixture {
        let segments = vec![Segment { address: BASE, offset: 0, size: bytes.len() as u64 }];
        let sized = functions.iter().map(|&(start, end)| (BASE + start, BASE + end)).collect();
        let functions = Functions::from_symbols(sized);
        Fixture { segments, bytes: bytes.to_vec(), functions, cache: CodeCache::default() }
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut CodeCache, File<'_>) -> T) -> T {
        let Fixture { segments, bytes, functions, cache } = self;
        f(cache, File { image: 0, text: Text { segments, bytes }, functions, entry: 0 })
    }

    fn frame(&mut self, at: u64, kind: AddressKind) -> Option<CodeFrame> {
        let address = FileAddress(BASE + at);
        self.with(|cache, file| cache.frame(file, CodeAddress { address, kind }))
    }

    /// Base, word and number of the frame, which is certain.
    fn cfa(&mut self, at: u64, kind: AddressKind) -> Option<(u8, Option<i32>, i32)> {
        match self.frame(at, kind)? {
            CodeFrame::Inner { base, at, add, proof: Proof::Code, .. } => Some((base, at, add)),
            _ => None,
        }
    }

    /// Locations of the caller's registers.
    fn kept(&mut self, at: u64) -> [SavedAt; 6] {
        match self.frame(at, Instruction) {
            Some(CodeFrame::Inner { kept, .. }) => kept,
            other => panic!("{at:#x}: {other:?}"),
        }
    }

    fn leads(&mut self, call: u64, to: Option<u64>) -> Leads {
        let to = to.map(|to| BASE + to);
        self.with(|cache, file| cache.leads(file, BASE + call, to, |_, _| false))
    }
}

fn sp(add: i32) -> Option<(u8, Option<i32>, i32)> {
    Some((SP, None, add))
}

#[test]
fn each_instruction_has_its_frame() {
    let mut w = Fixture::new(&CODE, &FUNCTIONS);
    for (at, add) in
        [(0, 8), (1, 16), (2, 24), (6, 48), (0xf, 48), (0x13, 24), (0x14, 16), (0x15, 8)]
    {
        assert_eq!(w.cfa(at, Instruction), sp(add), "{at:#x}");
    }
    // After the calls, the last of which never returns.
    for at in [0xf, 0x1b] {
        assert_eq!(w.cfa(at, Return), sp(48), "{at:#x}");
    }
    for (at, add) in [(0x1c, 8), (0x20, 24), (0x23, 24), (0x28, 24), (0x2c, 8)] {
        assert_eq!(w.cfa(at, Instruction), sp(add), "{at:#x}");
    }
}

#[test]
fn frame_pointers_are_used_from_set_up_to_restore() {
    let mut w = Fixture::new(&CODE, &FUNCTIONS);
    for (at, cfa) in [
        (0x2d, sp(8)),
        (0x2e, sp(16)),
        (0x31, Some((BP, None, 16))),
        (0x35, Some((BP, None, 16))),
        (0x3c, Some((BP, None, 16))),
        (0x3e, sp(8)),
    ] {
        assert_eq!(w.cfa(at, Instruction), cfa, "{at:#x}");
    }
    assert_eq!(
        w.kept(0x35),
        [
            SavedAt::Same,
            SavedAt::Cfa(-16),
            SavedAt::Same,
            SavedAt::Same,
            SavedAt::Same,
            SavedAt::Same
        ]
    );
}

#[test]
fn an_aligned_stack_is_left_by_the_saved_word() {
    let mut w = Fixture::new(&CODE, &FUNCTIONS);
    assert_eq!(w.cfa(0x42, Instruction), sp(8));
    assert_eq!(w.cfa(0x46, Instruction), sp(72));
    assert_eq!(w.cfa(0x4a, Instruction), Some((0, None, 8)));
    for at in [0x51, 0x52] {
        assert_eq!(w.cfa(at, Instruction), Some((SP, Some(48), 8)), "{at:#x}");
    }
    assert_eq!(w.cfa(0x57, Instruction), sp(8));
}

/// Without symbols, a path to the return without calls is certain on its own.
#[test]
fn without_symbols_calls_leave_a_doubt() {
    let mut w = Fixture::new(&CODE, &[]);
    assert_eq!(w.cfa(0x23, Instruction), sp(24));
    assert_eq!(w.cfa(0xf, Return), sp(48));
    let f1_before_its_call = w.frame(6, Instruction).unwrap();
    assert!(matches!(f1_before_its_call, CodeFrame::Inner { proof: Proof::Call, .. }));
}

#[test]
fn a_step_gives_back_what_was_saved() {
    let mut w = Fixture::new(&CODE, &FUNCTIONS);
    let frame = w.frame(0x35, Instruction).unwrap();
    let stack = [0, 0, 0x66, 0x1234u64];
    let mut read = |a: u64| stack.get((a.wrapping_sub(0x8000) / 8) as usize).copied().ok_or(());
    let mut registers = KnownRegisters::NONE;
    for (register, value) in [(SP, 0x8000), (BP, 0x8010), (3, 0x33), (12, 0xc)] {
        registers.set(register, value);
    }
    assert_eq!(frame.step(&mut registers, |_| true, &mut read), Step::Caller(0x1234));
    let of = [SP, 3, BP, 12, 13].map(|r| registers.get(r));
    assert_eq!(of, [Some(0x8020), Some(0x33), Some(0x66), Some(0xc), None]);
    // No frame lies below the stack pointer.
    registers.set(SP, u64::MAX - 8);
    assert_eq!(frame.step(&mut registers, |_| true, &mut read), Step::Failed);
}

#[test]
fn a_direct_call_leads_to_one_function() {
    // 0: call 6; ret. 6: jmp 0xd. 8: call [rip]; ...; 0xd: nop; ret
    let code = [
        0xe8, 1, 0, 0, 0, 0xc3, 0xeb, 5, 0xff, 0x15, 0, 0, 0, 0x90, 0xc3, //
        0xe8, 1, 0, 0, 0, 0xc3, 0xff, 0x25, 0, 0, 0, 0,
    ];
    let mut w = Fixture::new(&code, &[(0, 6), (8, 13), (13, 15)]);
    assert_eq!(w.leads(5, Some(6)), Leads::There);
    assert_eq!(w.leads(5, Some(14)), Leads::There);
    assert_eq!(w.leads(5, Some(9)), Leads::Elsewhere);
    assert_eq!(w.leads(5, None), Leads::Elsewhere);
    assert_eq!(w.leads(6, None), Leads::Elsewhere);
    // By way of a jump whose target is in memory.
    assert_eq!(w.leads(20, Some(9)), Leads::Somewhere);
    assert_eq!(w.leads(20, None), Leads::Somewhere);
}

/// A new thread of musl's: mov $56,%al; syscall; test; jnz 1f; xor %ebp,%ebp; pop %rdi;
/// call *%r9; hlt; 1: ret.
#[test]
fn a_thread_begins_at_its_clone_call() {
    let code = [
        0x31, 0xc0, 0xb0, 56, 0x0f, 0x05, 0x85, 0xc0, 0x75, 7, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1,
        0xf4, 0xc3,
    ];
    let mut w = Fixture::new(&code, &[(0, 18)]);
    assert_eq!(w.frame(16, Return), Some(CodeFrame::Outermost));
    // Before the result is tested, it may be either; the new thread is distinguished by that, too.
    for at in [6, 17] {
        let found = w.frame(at, Instruction);
        let is_maker = matches!(
            found,
            Some(CodeFrame::Inner { base: SP, at: None, add: 8, proof: Proof::Maker, .. })
        );
        assert!(is_maker, "{at}: {found:?}");
    }
}

/// Hostile code, endless or slow to analyse, costs no more than other code.
#[test]
fn hostile_code_costs_a_bounded_time() {
    // All are conditional jumps to one another.
    let mut jumps: Vec<u8> = (0..20_000u32).flat_map(|i| [0x74, (i * 37 % 251) as u8]).collect();
    jumps.push(0xc3);
    // Each loop pushes: no two paths agree.
    let pushes: Vec<u8> = (0..20_000).flat_map(|i| [0x50 | (i % 8) as u8, 0x75, 0xfd]).collect();
    for code in [jumps, pushes] {
        let mut w = Fixture::new(&code, &[(0, code.len() as u64)]);
        w.cache = CodeCache::with_budget(1 << 16);
        for at in 0..1000 {
            w.frame(at * 2, Instruction);
        }
        // An analysis that began is completed.
        let most = (1 << 16) + 1000 * 24 + 20_000 * 2 * 8;
        assert!(w.cache.spent() < most, "{}", w.cache.spent());
    }
}

/// This program.
fn own_module() -> crate::module::ModuleUnwinder {
    use crate::module::ModuleUnwinder;
    use sys::image::{Hit, Images, State};

    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let mut lines = maps.lines().filter_map(sys::maps::parse_line);
    let line = lines.find(|m| m.executable && m.path == exe.to_str().unwrap()).unwrap();
    let mut images = Images::default();
    let pid = std::process::id() as i32;
    let image = images.intern(pid, line.path, &[], line.file);
    let image = images.load(image, Hit { pid, start: line.start, end: line.end });
    let State::Elf(loaded) = &images.get(image).state else { panic!("no ELF file") };
    ModuleUnwinder::new(image, line.path, &loaded.elf, &loaded.bytes)
}

/// Small functions of a file, of all parts of it.
fn some_functions(file: File<'_>) -> Vec<(u64, u64)> {
    let small = |f: &&(u64, u64)| f.1 - f.0 < 2048;
    let functions: Vec<_> = file.functions.sized().iter().filter(small).copied().collect();
    functions.iter().step_by((functions.len() / 400).max(1)).take(400).copied().collect()
}

/// Frames from this program's instructions equal those of its unwind information, wherever both use
/// the same register.
#[test]
fn frames_from_code_are_those_of_the_unwind_information() {
    use crate::cfi::Rule;
    use crate::module::RuleCache;

    let module = own_module();
    let mut rules = RuleCache::default();
    let mut same = 0;
    let mut other = Vec::new();
    let mut unknown = 0;
    let code = module.code();
    for (start, end) in some_functions(code) {
        let graph = Graph::new(code, start, 2000, Extent::All, &mut |_| false);
        let inside = |a: &u64| (start..end).contains(a);
        for address in graph.addresses().filter(inside) {
            let at = CodeAddress { address: FileAddress(address), kind: Instruction };
            let Rule::Offset { register, cfa, .. } = rules.rule(&module, at) else {
                continue;
            };
            match module.frame(&mut rules, at) {
                Some(CodeFrame::Inner { base, at: None, add, proof: Proof::Code, .. })
                    if base == register =>
                {
                    if add == cfa {
                        same += 1;
                    } else {
                        other.push((start, address, add, cfa));
                    }
                }
                Some(_) => {}
                None => unknown += 1,
            }
        }
    }
    println!("{same} instructions agree, {unknown} have no frame, {} differ", other.len());
    assert!(other.is_empty(), "{:x?}", &other[..other.len().min(20)]);
    assert!(same > 10_000 && unknown * 10 < same, "{same}, {unknown}");
}

/// Jump tables are not followed: code behind them is found by its addresses only.
#[test]
fn frames_do_not_depend_on_the_order_of_lookups() {
    let module = own_module();
    let file = module.code();
    let (mut upwards, mut downwards) = (CodeCache::default(), CodeCache::default());
    let mut count = 0;
    for (start, end) in some_functions(file) {
        let bytes = &file.text.from(start).unwrap()[..(end - start) as usize];
        let decoder = iced_x86::Decoder::with_ip(64, bytes, start, 0);
        let list: Vec<_> = decoder
            .into_iter()
            .map(|i| CodeAddress { address: FileAddress(i.ip()), kind: Instruction })
            .collect();
        let mut frames: Vec<_> = list.iter().map(|&at| upwards.frame(file, at)).collect();
        for &at in list.iter().rev() {
            assert_eq!(downwards.frame(file, at), frames.pop().unwrap(), "{at:x?} in {start:x}");
            count += 1;
        }
    }
    assert!(count > 10_000, "{count}");
}

/// f: push rbp; mov rbp,rsp; push rbx; sub 8,rsp; xor ebx,ebx; call f; mov rbx,[rbp-8]; leave; ret.
#[test]
fn a_register_is_unchanged_before_it_is_saved_by_another_name() {
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 8, 0x31, 0xdb, 0xe8, 0xf0, 0xff, 0xff,
        0xff, 0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3,
    ];
    for functions in [&[(0, 22)][..], &[]] {
        let mut w = Fixture::new(&code, functions);
        w.functions.begin_at(&[BASE]);
        for at in [0, 1, 4, 5, 9, 0x14, 0x15] {
            assert_eq!(w.kept(at)[0], SavedAt::Same, "{at:#x}");
        }
        for at in [0xb, 0x10] {
            assert_eq!(w.kept(at)[0], SavedAt::Cfa(-24), "{at:#x}");
        }
    }
    // From an address between, the frame pointer is another register.
    let mut w = Fixture::new(&code, &[]);
    w.functions.begin_at(&[BASE + 4]);
    let frame = w.frame(4, Instruction);
    assert!(
        matches!(frame, Some(CodeFrame::Inner { base: BP, add: 16, kept, .. })
            if [SavedAt::Lost, SavedAt::Same].contains(&kept[0])),
        "{frame:?}"
    );
}

/// f: test; je 1f; ret; 1: push rdi; ret. The second one jumps to its argument.
#[test]
fn a_return_to_a_pushed_address_is_a_jump() {
    let code = [0x85, 0xff, 0x74, 1, 0xc3, 0x57, 0xc3];
    let mut w = Fixture::new(&code, &[(0, 7)]);
    for (at, add) in [(0, 8), (2, 8), (4, 8), (5, 8)] {
        assert_eq!(w.cfa(at, Instruction), sp(add), "{at}");
    }
}

/// As V8's `CallApiCallback`: pop rax; push r10; push rax; push rbp; mov rbp,rsp; and rsp,-16;
/// call *rdx; leave; pop rcx; add rsp,rbx; push rcx; ret.
#[test]
fn a_return_address_that_was_moved_is_found_by_the_frame_pointer() {
    let code = [
        0x58, 0x41, 0x52, 0x50, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0, 0xff, 0xd2, 0xc9,
        0x59, 0x48, 0x01, 0xdc, 0x51, 0xc3,
    ];
    let mut w = Fixture::new(&code, &[(0, code.len() as u64)]);
    for (at, kind) in [(8, Instruction), (12, Instruction), (14, Return)] {
        let frame = w.frame(at, kind).unwrap();
        assert!(frame.has_pointer() && frame.proof() == Some(Proof::Moved), "{at}: {frame:?}");
    }
    // Without a symbol, the function may begin elsewhere.
    let mut w = Fixture::new(&code, &[]);
    w.functions.begin_at(&[BASE]);
    assert_eq!(w.frame(14, Return), None);
    // Where it was put back, it is as usual: pop rax; push rax; push rbp; mov rbp,rsp; call *rdx.
    let back = [0x58, 0x50, 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd2, 0xc9, 0xc3];
    let mut w = Fixture::new(&back, &[(0, back.len() as u64)]);
    let found = w.frame(8, Return).and_then(|frame| frame.proof());
    assert_eq!(found, Some(Proof::Code));
    // With the return address in two places, or none: lea instead of the second push.
    for other in [&[0x48, 0x8d, 0x64, 0x24, 0xf8][..], &[0x50, 0x50]] {
        let code = [&code[..3], other, &code[4..]].concat();
        let mut w = Fixture::new(&code, &[(0, code.len() as u64)]);
        let found = w.frame(13 + other.len() as u64, Return).and_then(|frame| frame.proof());
        assert_ne!(found, Some(Proof::Moved));
    }
}

/// f: push rbx; test; je 1f; pop rbx; ret; 1: ret (with the wrong stack pointer).
#[test]
fn returns_that_disagree_leave_no_frame() {
    let code = [0x53, 0x85, 0xff, 0x74, 2, 0x5b, 0xc3, 0xc3];
    let mut w = Fixture::new(&code, &[(0, 8)]);
    assert_eq!(w.frame(1, Instruction), None);
    assert_eq!(w.cfa(5, Instruction), sp(16));
    assert_eq!(w.frame(7, Instruction), None);
}

/// A loop that begins at a multiple of 16 after a call: nops precede it, as after a function's last
/// call. push rbx; mov; call f2; nops; 1: call f2; dec; jne 1b; pop rbx; ret. f2 at 0x1b: ret.
#[test]
fn padding_behind_a_call_ends_no_function() {
    let code = [
        0x53, 0x89, 0xfb, 0xe8, 0x13, 0, 0, 0, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, //
        0xe8, 0x06, 0, 0, 0, 0xff, 0xcb, 0x75, 0xf7, 0x5b, 0xc3, 0xc3,
    ];
    for functions in [&[(0, 0x1b), (0x1b, 0x1c)][..], &[]] {
        let mut w = Fixture::new(&code, functions);
        w.functions.begin_at(&[BASE, BASE + 0x1b]);
        for at in [8, 0x15] {
            let found = w.frame(at, Return);
            assert!(
                matches!(found, Some(CodeFrame::Inner { base: SP, at: None, add: 16, .. })),
                "{at:#x}: {found:?}"
            );
        }
    }
}

/// f1: push rbx; test; je 1f; pop rbx; ret; 1: call f3 (which is in another file, and never
/// returns). f2, which follows: sub 24,rsp; add 24,rsp; ret.
#[test]
fn code_that_returns_with_another_stack_pointer_is_another_function() {
    let code = [
        0x53, 0x85, 0xff, 0x74, 2, 0x5b, 0xc3, 0xe8, 0x0a, 0, 0, 0, //
        0x48, 0x83, 0xec, 0x18, 0x48, 0x83, 0xc4, 0x18, 0xc3, 0x90, //
        0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let mut w = Fixture::new(&code, &[]);
    w.functions.begin_at(&[BASE, BASE + 0x16]);
    for (at, kind) in [(3, Instruction), (12, Return)] {
        let found = w.frame(at, kind);
        assert!(
            matches!(found, Some(CodeFrame::Inner { base: SP, at: None, add: 16, .. })),
            "{at:#x}: {found:?}"
        );
    }
}

/// mov rax,rsp; sub 0x40,rsp; and -0x100,rsp; mov rax,24(rsp); xor eax,eax;
/// 1: lea -0x20(rsp),rsp; dec; jne 1b; ret.
#[test]
fn a_moving_stack_pointer_is_found_by_its_saved_copy() {
    let code = [
        0x48, 0x89, 0xe0, 0x48, 0x83, 0xec, 0x40, 0x48, 0x81, 0xe4, 0x00, 0xff, 0xff, 0xff, 0x48,
        0x89, 0x44, 0x24, 0x18, 0x31, 0xc0, 0x48, 0x8d, 0x64, 0x24, 0xe0, 0xff, 0xcf, 0x75, 0xf7,
        0xc3,
    ];
    let mut w = Fixture::new(&code, &[(0, code.len() as u64)]);
    assert_eq!(w.frame(0x1a, Instruction), None);
    let moved = w.with(|cache, file| cache.moved(file, BASE, BASE + 0x1a)).unwrap();
    let began = 0x7fff_1238;
    let at = ((began - 0x40) & !0xff) + 0x18;
    let read = |put: u64| {
        move |a: u64| match a {
            a if a == at => Ok(put),
            _ => Ok(7),
        }
    };
    for rounds in 1..7 {
        let sp = at - 0x18 - rounds * 0x20;
        assert_eq!(moved.word(sp, read(began)), Some((at, began)), "{rounds}");
        // A value that another stack pointer has left there.
        for other in [began + 0x100, began - 0x100, at - 8, 0] {
            assert_eq!(moved.word(sp, read(other)), None, "{rounds} {other:#x}");
        }
    }
}

/// f1: call f2; lea f3; call f2; ret. f2 at 18: ret. f3 at 19: ret. f4 at 20: call f1; ret.
#[test]
fn a_caller_that_frame_pointers_skip_is_found_by_its_call() {
    let code = [
        0xe8, 13, 0, 0, 0, 0x48, 0x8d, 0x05, 7, 0, 0, 0, 0xe8, 1, 0, 0, 0, 0xc3, 0xc3,
        0xc3, //
        0xe8, 0xe7, 0xff, 0xff, 0xff, 0xc3,
    ];
    let mut w = Fixture::new(&code, &[(0, 18), (18, 19), (19, 20), (20, 26)]);
    let mut find = |to: u64, argument: Option<u64>| {
        let argument = argument.map(|a| BASE + a);
        let between = Between { after: BASE + 25, to: BASE + to, argument };
        w.with(|cache, file| cache.between(file, between, |_, _| false))
    };
    // There are two such calls; of f3, none.
    assert_eq!(find(18, None), None);
    assert_eq!(find(18, Some(18)), None);
    assert_eq!(find(18, Some(19)), Some(BASE + 17));
    assert_eq!(find(19, None), None);
}

/// Segments in a file are not checked.
#[test]
fn a_segment_may_claim_the_end_of_memory() {
    let at_end = Segment { address: u64::MAX - 7, offset: 0, size: 64 };
    let below = Segment { address: 0x10, offset: 0, size: 64 };
    let segments = [at_end, below];
    let text = Text { segments: &segments, bytes: &CODE };
    assert_eq!(text.from(u64::MAX), Some(&CODE[7..64]));
    assert_eq!(text.from(0), None, "the segment does not begin again there");
    assert_eq!(text.before(4, 4), None);
    assert_eq!(text.before(u64::MAX, 9), Some(&CODE[..7]));
    assert_eq!(text.before(0x10, 9), Some(&[][..]));
    let huge = [Segment { address: 0, offset: u64::MAX - 1, size: u64::MAX }];
    let text = Text { segments: &huge, bytes: &CODE };
    assert_eq!((text.from(8), text.before(8, 8)), (None, None));
}

/// Registers may have any value.
#[test]
fn a_frame_may_begin_at_the_end_of_memory() {
    let kept = [SavedAt::Same; 6];
    let frame = CodeFrame::Inner { base: BP, at: None, add: 3, kept, proof: Proof::Code };
    let mut registers = KnownRegisters::NONE;
    registers.set(BP, 0);
    registers.set(SP, 0);
    let step = frame.step(&mut registers, |_| true, &mut |_| Err(()));
    assert!(matches!(step, Step::Unreadable(at) if at == 3_u64.wrapping_sub(8)));
}
