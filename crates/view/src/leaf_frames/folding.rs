//! Leaf frames, folded into their callers.

use profile::{Line, LocationId, Profile, StrId};
use rustc_hash::FxHashMap;

use super::{LeafFrames, allocators, functions};
use crate::Cancel;
use crate::binaries::KernelMappings;
use crate::filter::edit;
use crate::lock_functions::{self, LockRole, WaitRule};

/// The innermost frames of a stack that are looked at.
const DEPTH: usize = 48;

/// Most frames from a condition variable or a semaphore to the lock that is made of it.
const MOST_FRAMES_OF_LOCK: usize = 4;

/// Most functions of drivers between two functions of the block layer.
const MOST_DRIVER_FRAMES: usize = 4;

/// Removes the leaf frames of stacks, so that their values are those of the callers. No stack loses
/// its outermost frame, or the one that says why it is truncated. Frames of the labels `tag_leaf` below
/// them stay. False if there are none, or after `cancel`.
pub fn fold_leaf_frames(
    profile: &mut Profile,
    leaves: LeafFrames,
    tag_leaf: &[String],
    cancel: &Cancel,
) -> bool {
    let keys: Vec<StrId> = tag_leaf.iter().filter_map(|key| profile.strings.find(key)).collect();
    let mut folding = Folding {
        leaves,
        kernel: KernelMappings::new(profile),
        allocators: allocators(profile, leaves),
        functions: FxHashMap::default(),
        first_frames: FxHashMap::default(),
        frames: Vec::with_capacity(DEPTH),
    };
    let mut has_any = false;
    edit::replace_stacks(profile, |profile, stack, out| {
        let tags = stack.iter().take_while(|&&id| is_tag(profile, id, &keys)).count();
        let (tags, stack) = stack.split_at(tags);
        out.extend_from_slice(tags);
        let kept = if cancel.is_canceled() { None } else { folding.first_kept(profile, stack) };
        match kept {
            Some(Place { location, line }) => {
                has_any = true;
                out.push(folding.without_inner_lines(profile, stack[location], line));
                out.extend_from_slice(&stack[location + 1..]);
            }
            None => out.extend_from_slice(stack),
        }
    });
    // Equal samples are not added up: their number is what confidence is computed from.
    has_any
}

/// True for the frame of a label with one of these keys, which is the frame's source file.
fn is_tag(profile: &Profile, id: LocationId, keys: &[StrId]) -> bool {
    let location = &profile.locations[id.0 as usize];
    let is_key = |line: &Line| {
        line.line == 0 && keys.contains(&profile.functions[line.function.0 as usize].filename)
    };
    let has_no_code = location.mapping.is_none() && location.address == 0;
    has_no_code && matches!(profile.lines_of(id), [line] if is_key(line))
}

/// For each mapping, true if its code belongs to these leaf frames whatever its functions are.
fn allocators(profile: &Profile, leaves: LeafFrames) -> Vec<bool> {
    let is_asked = leaves == LeafFrames::Allocator;
    let mappings = profile.mappings.iter();
    mappings.map(|m| is_asked && allocators::is_library(profile.str(m.file))).collect()
}

/// A frame of a stack.
#[derive(Clone, Copy)]
struct Place {
    /// Index in the stack.
    location: usize,
    /// Index among the location's lines.
    line: usize,
}

/// What is known of a frame.
#[derive(Clone, Copy)]
struct LeafFrame {
    place: Place,
    in_kernel: bool,
    function: FunctionClass,
    /// It says why the stack is truncated.
    is_truncation: bool,
}

/// What a function is to the leaf frames of a sample type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FunctionClass {
    /// It is one of them, in the kernel for all but [`LeafFrames::Allocator`].
    is_leaf: bool,
    /// It belongs to them in the kernel, if one of them is below it.
    is_between: bool,
    /// A stack of them may end in it.
    is_innermost: bool,
    /// In a program: the object that it waits for or releases.
    lock: Option<WaitRule>,
    /// In a program: it is a lock if it is above a condition variable; above a semaphore.
    is_lock_above: [bool; 2],
    /// In a program: it is a lock's method.
    is_lock_wrapper: bool,
    /// In a program: it makes a system call for a lock.
    is_below_lock: bool,
}

struct Folding {
    leaves: LeafFrames,
    kernel: KernelMappings,
    /// The mappings that are libraries which do nothing but allocate.
    allocators: Vec<bool>,
    /// By name.
    functions: FxHashMap<StrId, FunctionClass>,
    /// Locations without their inner lines, by the number of these.
    first_frames: FxHashMap<(LocationId, usize), LocationId>,
    /// Of the stack that is looked at, leaf first.
    frames: Vec<LeafFrame>,
}

impl Folding {
    /// The innermost frame that remains, if others do not.
    fn first_kept(&mut self, profile: &Profile, stack: &[LocationId]) -> Option<Place> {
        let is_whole = self.look_at(profile, stack)?;
        let frames = &self.frames;
        let mut count = match self.leaves {
            LeafFrames::Scheduler | LeafFrames::Allocator => self.run(),
            LeafFrames::BlockLayer => self.requests(),
            LeafFrames::Locks(_) => self.locks(),
        };
        if is_whole {
            count = count.min(frames.len().saturating_sub(1));
        }
        if frames.get(count).is_none_or(|frame| frame.is_truncation) {
            count = count.saturating_sub(1);
        }
        (count > 0).then(|| frames[count].place)
    }

    /// Takes in the innermost frames of a stack, as many as matter. True if these are all; `None` if
    /// nothing is to be folded.
    fn look_at(&mut self, profile: &Profile, stack: &[LocationId]) -> Option<bool> {
        let is_run = matches!(self.leaves, LeafFrames::Scheduler | LeafFrames::Allocator);
        self.frames.clear();
        for (location, &id) in stack.iter().enumerate() {
            let at = &profile.locations[id.0 as usize];
            let in_kernel = self.kernel.has(at);
            let in_allocator =
                at.mapping.is_some_and(|mapping| self.allocators[mapping.0 as usize]);
            let lines = profile.lines_of(id);
            for line in 0..lines.len().max(1) {
                if self.frames.len() == DEPTH {
                    return Some(false);
                }
                let function = match lines.get(line) {
                    _ if in_allocator => FunctionClass::ALLOCATOR,
                    Some(line) => self.class(profile, line.function, in_kernel),
                    None => FunctionClass::default(),
                };
                let place = Place { location, line };
                let is_truncation = lines.len() == 1 && profile.truncation_of(id).is_some();
                self.frames.push(LeafFrame { place, in_kernel, function, is_truncation });
                match (is_run, self.frames.len()) {
                    (true, 1) if !function.is_innermost => return None,
                    // The first that remains, which may be truncated.
                    (true, _) if !function.belongs() => {
                        let is_last = location + 1 == stack.len() && line + 1 >= lines.len();
                        return Some(is_last);
                    }
                    _ => {}
                }
            }
        }
        Some(true)
    }

    fn class(
        &mut self,
        profile: &Profile,
        function: profile::FunctionId,
        in_kernel: bool,
    ) -> FunctionClass {
        let function = &profile.functions[function.0 as usize];
        let id = if function.name == StrId::EMPTY { function.system_name } else { function.name };
        let leaves = self.leaves;
        let known = self.functions.entry(id);
        let class = *known.or_insert_with(|| FunctionClass::new(profile.str(id), leaves));
        // A function of a program may have the name of one of the kernel.
        if in_kernel || leaves == LeafFrames::Allocator {
            class
        } else {
            FunctionClass { is_leaf: false, is_between: false, is_innermost: false, ..class }
        }
    }

    /// The number of leaf frames, one after the other.
    fn run(&self) -> usize {
        let frames = &self.frames;
        if !frames.first().is_some_and(|frame| frame.function.is_innermost) {
            return 0;
        }
        frames.iter().take_while(|frame| frame.function.belongs()).count()
    }

    /// The number of frames to the outermost one of the block layer, which calls drivers, which call
    /// it.
    fn requests(&self) -> usize {
        let mut count = 0;
        for (i, frame) in self.frames.iter().enumerate() {
            if !frame.in_kernel || i > count + MOST_DRIVER_FRAMES {
                break;
            }
            if frame.function.is_leaf {
                count = i + 1;
            }
        }
        // A thread that goes to sleep issues the requests that it has collected.
        let sleeps = self.frames[count..].iter().take_while(|frame| frame.function.is_between);
        if count == 0 { 0 } else { count + sleeps.count() }
    }

    /// The number of frames that are a lock: the kernel's, and then the program's.
    fn locks(&self) -> usize {
        let kernel = self.run();
        let rest = &self.frames[kernel..];
        // A lock may have such a name, too: `futex::Mutex::lock_contended`.
        let is_below = |frame: &&LeafFrame| {
            frame.function.is_below_lock && frame.function.lock.is_none() && !frame.in_kernel
        };
        let below = rest.iter().take_while(is_below);
        let first = below.count();
        let Some(FunctionClass { lock: Some(rule), .. }) =
            rest.get(first).filter(|frame| !frame.in_kernel).map(|frame| frame.function)
        else {
            return kernel;
        };
        let kind = match rule {
            lock_functions::SEMAPHORE => Some(1),
            WaitRule::Other(_) => Some(0),
            WaitRule::Lock(_) => None,
        };
        let is_lock =
            |frame: &LeafFrame| kind.is_some_and(|kind| frame.function.is_lock_above[kind]);
        let above = rest[first + 1..].iter().take(MOST_FRAMES_OF_LOCK);
        let outer = match (above.clone().position(is_lock), rule) {
            (Some(at), _) => first + 1 + at,
            (None, WaitRule::Lock(_)) => first,
            // It waits for something else.
            (None, WaitRule::Other(_)) => return kernel,
        };
        let belongs = |frame: &&LeafFrame| {
            let FunctionClass { lock, is_lock_wrapper, .. } = frame.function;
            matches!(lock, Some(WaitRule::Lock(_))) || is_lock_wrapper || is_lock(frame)
        };
        kernel + outer + 1 + rest[outer + 1..].iter().take_while(belongs).count()
    }

    /// A location without its `count` innermost lines.
    fn without_inner_lines(
        &mut self,
        profile: &mut Profile,
        id: LocationId,
        count: usize,
    ) -> LocationId {
        if count == 0 {
            return id;
        }
        *self.first_frames.entry((id, count)).or_insert_with(|| {
            let mut location = profile.locations[id.0 as usize].clone();
            location.first_line += count as u32;
            location.line_count -= count as u32;
            profile.locations.push(location);
            LocationId(profile.locations.len() as u32 - 1)
        })
    }
}

impl FunctionClass {
    /// Any code of an allocator's library.
    const ALLOCATOR: FunctionClass = FunctionClass {
        is_leaf: true,
        is_between: true,
        is_innermost: true,
        lock: None,
        is_lock_above: [false; 2],
        is_lock_wrapper: false,
        is_below_lock: false,
    };

    fn new(name: &str, leaves: LeafFrames) -> FunctionClass {
        match leaves {
            LeafFrames::Scheduler => FunctionClass {
                is_leaf: functions::is_scheduler(name),
                is_between: functions::is_preemption(name),
                is_innermost: functions::is_sleep(name),
                ..FunctionClass::default()
            },
            LeafFrames::BlockLayer => FunctionClass {
                is_leaf: functions::is_block_layer(name),
                is_between: functions::is_scheduler(name),
                ..FunctionClass::default()
            },
            LeafFrames::Allocator => {
                let is_leaf = allocators::is_allocator(name);
                FunctionClass { is_leaf, is_innermost: is_leaf, ..FunctionClass::default() }
            }
            LeafFrames::Locks(role) => FunctionClass::lock(name, role),
        }
    }

    fn lock(name: &str, role: LockRole) -> FunctionClass {
        let above = |semaphore| {
            let rule = lock_functions::behind(name, role, semaphore);
            matches!(rule, Some(WaitRule::Lock(_)))
        };
        let is_leaf = functions::is_scheduler(name) || functions::is_kernel_lock(name);
        FunctionClass {
            is_leaf,
            is_between: functions::is_system_call(name),
            is_innermost: is_leaf,
            lock: lock_functions::find(name, role),
            is_lock_above: [above(false), above(true)],
            is_lock_wrapper: functions::is_lock_wrapper(name),
            is_below_lock: functions::is_below_lock(name),
        }
    }

    /// True if it is folded where those below it are.
    fn belongs(self) -> bool {
        self.is_leaf || self.is_between
    }
}

#[cfg(test)]
mod tests;
