//! How soon the rings are looked at again.
//!
//! What lies beyond the copy of a deep stack is read from the process, and must still be what it
//! was. A program whose stacks are deep at times is looked at soon for as long as it may be so
//! again; one that ends takes the stacks with it that have not been looked at.

use std::time::Duration;

use super::TICK_MS;
use super::aggregate::Depth;

/// Time between two looks while stacks are deeper than their copies, and while most are.
const SOON_MS: i64 = 20;
const SOONER_MS: i64 = 5;

/// So long after a deep stack another is expected; and so long nobody knows.
const EXPECTED: Duration = Duration::from_secs(2);
const UNKNOWN: Duration = Duration::from_millis(40);

/// Of prof's time at most one part in so many goes into looks that are so soon.
const SHARE: u32 = 5;

/// How soon the rings are looked at again.
#[derive(Default)]
pub struct Pace {
    /// When a deep stack was seen last, since sampling began.
    deep: Option<Duration>,
}

impl Pace {
    /// Milliseconds until the next look, `now` after sampling began, when stacks were as deep as
    /// this at the last, and that took so long.
    pub fn tick_ms(&mut self, depth: Depth, took: Duration, now: Duration) -> i64 {
        if depth != Depth::Usual {
            self.deep = Some(now);
        }
        let expected = match self.deep {
            Some(seen) => now.saturating_sub(seen) < EXPECTED,
            None => now < UNKNOWN,
        };
        match depth {
            Depth::MostlyDeep => {
                let rest = took * (SHARE - 1);
                i64::try_from(rest.as_millis()).unwrap_or(SOON_MS).clamp(SOONER_MS, SOON_MS)
            }
            _ if expected => SOON_MS,
            _ => TICK_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_stacks_are_looked_at_soon_and_expected_again() {
        let at = Duration::from_millis;
        let mut pace = Pace::default();
        let mut tick = |depth, took, now| pace.tick_ms(depth, at(took), at(now));
        assert_eq!(tick(Depth::Usual, 0, 0), SOON_MS);
        assert_eq!(tick(Depth::Usual, 0, 300), TICK_MS);
        assert_eq!(tick(Depth::MostlyDeep, 1, 500), SOONER_MS);
        assert_eq!(tick(Depth::MostlyDeep, 3, 500), 12);
        assert_eq!(tick(Depth::MostlyDeep, 300, 500), SOON_MS);
        assert_eq!(tick(Depth::Deep, 0, 505), SOON_MS);
        assert_eq!(tick(Depth::Usual, 0, 2400), SOON_MS);
        assert_eq!(tick(Depth::Usual, 0, 2600), TICK_MS);
    }
}
