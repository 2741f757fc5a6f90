//! Programs of prof's that run in the kernel: they do there what happens too often to be told of
//! each time, and tell of some of it, in a way that the whole is known.
//!
//! They need root, a kernel that tells of its types (BTF), and the tracepoints that are named where
//! they are written; whoever lacks one of these records without them, at a higher price. They are
//! gone as soon as prof is, however it ends.

pub mod btf;
pub mod calls;
mod code;
pub mod deep;
pub mod filter;
mod members;
mod steps;
pub mod stop;
mod syscall;
pub mod waits;

pub use members::Whose;

/// What programs tell of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Where the time of threads goes.
    pub wall: bool,
    /// Waits for locks.
    pub lock: bool,
    /// System calls.
    pub syscalls: bool,
}

/// What something of which a part lasted so long stands for, if those that are shorter than an interval
/// are told of with the chance lasted / interval.
pub fn stands_for(part: u64, lasted: u64, interval: u64) -> u64 {
    if lasted >= interval || lasted == 0 {
        return part;
    }
    let scaled = u128::from(part) * u128::from(interval) / u128::from(lasted);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A number of eight bytes in what programs tell.
fn number(bytes: &[u8], at: i16) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk::<8>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_ones_stand_for_more() {
        assert_eq!(stands_for(10, 10, 0), 10);
        assert_eq!(stands_for(5000, 5000, 4096), 5000);
        // Every 41st of 100 ns, each of which stands for the interval.
        assert_eq!(stands_for(100, 100, 4096), 4096);
        assert_eq!(stands_for(1, 100, 4096), 40);
        assert_eq!(stands_for(0, 0, 4096), 0);
        assert_eq!(stands_for(u64::MAX, 1, 4096), u64::MAX);
    }
}
