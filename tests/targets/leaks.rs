//! Leaves memory behind as Rust programs do. Functions `lost_…` leave blocks that no pointer leads
//! to, `kept_…` blocks that a pointer leads to at exit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Mutex;

static TEXTS: Mutex<Option<HashMap<usize, String>>> = Mutex::new(None);
static LEAKED: Mutex<Vec<&'static [u64]>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Node {
    next: RefCell<Option<Rc<Node>>>,
    _more: [u64; 20],
}

#[inline(never)]
fn kept_texts() {
    *TEXTS.lock().unwrap() = Some((0..20).map(|i| (i, "a".repeat(500))).collect());
}

#[inline(never)]
fn kept_leaked() {
    LEAKED.lock().unwrap().extend((0..20).map(|i| &*vec![i; 50].leak()));
}

#[inline(never)]
fn lost_cycles() {
    for _ in 0..20 {
        let (a, b) = (Rc::new(Node::default()), Rc::new(Node::default()));
        *a.next.borrow_mut() = Some(b.clone());
        *b.next.borrow_mut() = Some(a);
    }
}

#[inline(never)]
fn lost_forgotten() {
    for i in 0..20u64 {
        std::mem::forget(black_box(vec![i; 60]));
    }
}

#[inline(never)]
fn freed() {
    OWN.with_borrow_mut(|own| own.extend((0..20).map(|_| vec![1; 700].into_boxed_slice())));
}

/// Clears the pointers that are left on the stack below.
#[inline(never)]
fn wipe() {
    black_box([0u8; 32 << 10]);
}

fn main() {
    lost_cycles();
    wipe();
    lost_forgotten();
    wipe();
    kept_texts();
    kept_leaked();
    std::thread::spawn(|| {
        lost_forgotten();
        freed();
    })
    .join()
    .unwrap();
    wipe();
}
