//! The cost of the analysis, in steps: proportional to the code, for any code and all its addresses
//! together.

use super::*;

/// Steps of the analysis, and of a lookup, for each byte of code.
const STEPS: u64 = 24;

/// A random number generator (Knuth's constants).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// `push rbp; push rbx; sub 264,rsp`, and the reverse with `ret`.
const ENTER: [u8; 9] = [0x55, 0x53, 0x48, 0x81, 0xec, 0x08, 0x01, 0, 0];
const LEAVE: [u8; 10] = [0x48, 0x81, 0xc4, 0x08, 0x01, 0, 0, 0x5b, 0x5d, 0xc3];

/// Code between these two: `count` parts of the same size, each from its number and the distances
/// from its end to other parts.
fn function(
    count: usize,
    mut part: impl FnMut(usize, &mut dyn FnMut(usize) -> i32) -> Vec<u8>,
) -> Vec<u8> {
    let size = part(0, &mut |_| 0).len();
    let mut code = ENTER.to_vec();
    for i in 0..count {
        let mut to = |other: usize| (other as i32 - i as i32 - 1) * size as i32;
        code.extend(part(i, &mut to));
    }
    code.extend(LEAVE);
    code
}

/// Looks up all addresses, `step` bytes apart, and returns the number of steps for each byte, and of
/// addresses with a frame.
fn cost(w: &mut Fixture, step: usize) -> (u64, usize) {
    let asked = (0..w.bytes.len() as u64).step_by(step);
    let found = asked.filter(|&at| w.frame(at, Instruction).is_some()).count();
    (w.cache.spent() / w.bytes.len() as u64, found)
}

/// With a budget that no analysis reaches.
fn fixture(code: &[u8]) -> Fixture {
    let mut w = Fixture::new(code, &[(0, code.len() as u64)]);
    w.cache = CodeCache::with_budget(i64::MAX / 2);
    w
}

fn relative(to: i32) -> [u8; 4] {
    to.to_le_bytes()
}

/// `mov reg,N(rsp); lea N(reg),reg; test; jo` to anywhere.
fn branches(count: usize) -> Vec<u8> {
    let mut random = Random(1);
    function(count, |_, to| {
        const REGISTERS: [u8; 11] = [0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 5];
        let mut register = || REGISTERS[random.below(11) as usize];
        let (from, base, into) = (register(), register(), register());
        let high = |r: u8| r >> 3;
        let at = random.below(32) as u8 * 8;
        let mut part =
            vec![0x48 | high(from) << 2, 0x89, 0x84 | (from & 7) << 3, 0x24, at, 0, 0, 0];
        part.extend([0x48 | high(into) << 2 | high(base), 0x8d, 0x40 | (into & 7) << 3 | base & 7]);
        part.extend([random.below(64) as u8, 0x85, 0xc3, 0x0f, 0x80]);
        part.extend(relative(to(random.below(count as u64) as usize)));
        part
    })
}

#[test]
fn all_addresses_of_a_function_share_its_analysis() {
    for count in [300, 1000, 10_000] {
        let code = branches(count);
        let mut w = fixture(&code);
        // The body.
        for at in [9, 17, 21] {
            assert_eq!(w.cfa(at, Instruction), sp(264 + 24), "{at}");
        }
        let once = w.cache.spent();
        assert!(once < 4 * count as u64 * 6, "{once}");
        let (steps, _) = cost(&mut w, 1);
        assert!(steps < STEPS, "{steps} {count}");
    }
}

#[test]
fn results_that_were_dropped_are_found_again_and_cost_the_same() {
    let mut w = fixture(&branches(300));
    let frame = w.cfa(17, Instruction);
    let once = w.cache.spent();
    w.cache.clear();
    assert_eq!((w.cfa(17, Instruction), w.cache.spent()), (frame, 2 * once));
}

/// Loops in loops, each around the next, that store and push.
#[test]
fn nested_loops_cost_what_their_code_does() {
    for count in [100, 1000, 8000] {
        let code = function(count, |i, to| {
            // mov rsp,N(rsp); jz to the mirrored part
            let mut part = vec![0x48, 0x89, 0xa4, 0x24, (i % 8) as u8 * 8, 0, 0, 0, 0x0f, 0x84];
            part.extend(relative(to(if i < count / 2 { i } else { count - 1 - i })));
            part
        });
        let (steps, found) = cost(&mut fixture(&code), 1);
        assert!(steps < STEPS, "{steps} {count}");
        assert!(found > count, "{found}");
    }
}

/// Each part pushes on one of two ways to the next.
#[test]
fn calls_after_which_the_stack_differs_cost_what_their_code_does() {
    for count in [100, 1000, 10_000] {
        let code = function(count, |i, to| {
            // jz to the next part but one; push rax; call the beginning
            let mut part = vec![0x0f, 0x84];
            part.extend(relative(to((i + 2).min(count))));
            part.extend([0x50, 0xe8]);
            part.extend(relative(to(i / 2)));
            part
        });
        let (steps, _) = cost(&mut fixture(&code), 1);
        // And those that the calls lead to, up to 256 instructions.
        assert!(steps < STEPS + 256, "{steps} {count}");
    }
}

/// Parts that only jump tables lead to, which all go on with the same code.
#[test]
fn code_behind_jump_tables_shares_its_analysis() {
    for count in [100, 1000, 4000] {
        let tail = count / 2;
        let code = function(count, |i, to| {
            // test; jmp *rax, or jmp to the shared second half, which consists of the same.
            let mut part = vec![0x85, 0xc0];
            match i {
                0 => part.extend([0xff, 0xe0, 0x90, 0x90, 0x90]),
                i if i < tail => {
                    part.push(0xe9);
                    part.extend(relative(to(tail)));
                }
                _ => part.extend([0x48, 0x8d, 0x40, 1, 0x90]),
            }
            part
        });
        let mut w = fixture(&code);
        let (steps, found) = cost(&mut w, 7);
        assert!(steps < STEPS, "{steps} {count}");
        assert!(found >= count, "{found} of {count}");
        // Each is found through the others' code.
        assert_eq!(w.cfa(9 + 7 * 5, Instruction), sp(264 + 24));
        assert_eq!(w.cfa(9 + 7 * (count as u64 - 5), Instruction), sp(264 + 24));
    }
}

/// Jumps into the middle of instructions, at each byte.
#[test]
fn overlapping_instructions_cost_what_their_code_does() {
    for count in [1000, 30_000] {
        let mut random = Random(7);
        let code =
            function(count, |_, _| vec![0x70 | random.below(16) as u8, random.below(256) as u8]);
        let (steps, _) = cost(&mut fixture(&code), 1);
        assert!(steps < STEPS, "{steps} {count}");
    }
}

/// Neither its beginning nor any address within it can be analysed.
#[test]
fn a_function_that_is_too_large_costs_what_it_reads() {
    for count in [70_000, 200_000] {
        let code = function(count, |_, _| vec![0x85, 0xc0]);
        let (steps, found) = cost(&mut fixture(&code), 50);
        assert!(steps < STEPS && found < 10_000, "{steps} {found}");
    }
}

/// Each of many functions goes on with all the code behind it.
#[test]
fn functions_that_share_all_their_code_have_a_budget() {
    let code = function(30_000, |_, _| vec![0x85, 0xc0]);
    let mut w = Fixture::new(&code, &[]);
    let starts: Vec<u64> = (0..code.len() as u64).step_by(16).map(|at| BASE + at).collect();
    w.functions.begin_at(&starts);
    let lookups = code.len() as u64;
    for at in 0..lookups {
        w.frame(at, Instruction);
    }
    let most = (1 << 16) + 64 * lookups + 24 * lookups + 30_000 * STEPS;
    assert!(w.cache.spent() < most, "{}", w.cache.spent());
    assert_eq!(w.cache.over_budget().collect::<Vec<_>>(), [0]);
}
