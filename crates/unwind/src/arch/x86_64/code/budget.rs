//! Limits of the time that the analysis of code takes, for each image and for the recording.

use rustc_hash::FxHashMap;

/// Steps of one image, at first and at most: one and a half seconds; Chromium's 236 MB need one. A
/// step is a decoded instruction and its evaluations, 250 ns.
const IMAGE: i64 = 6 << 20;

/// Steps of all images: four seconds.
const ALL: i64 = 16 << 20;

/// Steps that each lookup adds: 6 µs. So code that is recorded for a long time is analysed, and
/// hostile code costs no more than other code.
const REFILL: i64 = 24;

/// Steps of a small image, and of each byte of code.
const LEAST: i64 = 1 << 16;
const FOR_A_BYTE: u64 = 64;

/// What is left for an image.
#[derive(Clone, Copy)]
struct Left {
    steps: i64,
    /// Steps at most.
    most: i64,
    /// A lookup was refused.
    is_over: bool,
}

/// Remaining steps.
pub struct Budget {
    images: FxHashMap<u32, Left>,
    all: i64,
    /// Limits of images and of all together.
    most: i64,
    most_of_all: i64,
    /// Number of steps that were spent.
    pub spent: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(IMAGE, ALL)
    }
}

impl Budget {
    /// A budget of at most these numbers of steps for each image and for all.
    pub fn new(most: i64, all: i64) -> Budget {
        Budget { images: FxHashMap::default(), all, most, most_of_all: all, spent: 0 }
    }

    fn image(&mut self, image: u32, size: u64) -> &mut Left {
        let by_size = i64::try_from(size.saturating_mul(FOR_A_BYTE)).unwrap_or(i64::MAX);
        let most = self.most.min(by_size.saturating_add(LEAST));
        self.images.entry(image).or_insert(Left { steps: most, most, is_over: false })
    }

    /// A lookup in an image with code of this size begins.
    pub fn refill(&mut self, image: u32, size: u64) {
        let left = self.image(image, size);
        left.steps = left.steps.saturating_add(REFILL).min(left.most);
        self.all = self.all.saturating_add(REFILL).min(self.most_of_all);
    }

    /// The same in an image that had lookups before.
    pub fn refill_known(&mut self, image: u32) {
        if let Some(left) = self.images.get_mut(&image) {
            left.steps = left.steps.saturating_add(REFILL).min(left.most);
            self.all = self.all.saturating_add(REFILL).min(self.most_of_all);
        }
    }

    /// True if nothing is left for an image that had lookups before: the lookup is refused.
    pub fn refuses(&mut self, image: u32) -> bool {
        let is_spent = self.is_spent(image);
        if let Some(left) = self.images.get_mut(&image) {
            left.is_over |= is_spent;
        }
        is_spent
    }

    /// Counts steps of an analysis of an image with code of this size.
    pub fn spend(&mut self, image: u32, size: u64, steps: usize) {
        self.image(image, size).steps -= steps as i64;
        self.all -= steps as i64;
        self.spent += steps as u64;
    }

    /// True if nothing is left for an image.
    pub fn is_spent(&self, image: u32) -> bool {
        self.all < 0 || self.images.get(&image).is_some_and(|left| left.steps < 0)
    }

    /// True if something is left for an image; otherwise the lookup is refused.
    pub fn allows(&mut self, image: u32, size: u64) -> bool {
        let is_spent = self.is_spent(image);
        self.image(image, size).is_over |= is_spent;
        !is_spent
    }

    /// Images in which lookups were refused.
    pub fn over(&self) -> impl Iterator<Item = u32> {
        self.images.iter().filter(|(_, left)| left.is_over).map(|(&image, _)| image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_gets_what_its_size_and_its_lookups_allow() {
        let mut budget = Budget::default();
        budget.spend(1, 1000, LEAST as usize + 64_000);
        assert!(budget.allows(1, 1000));
        budget.spend(1, 1000, 2 * REFILL as usize);
        for _ in 0..2 {
            assert!(!budget.allows(1, 1000));
            budget.refill(1, 1000);
        }
        assert!(budget.allows(1, 1000));
        assert_eq!(budget.over().collect::<Vec<_>>(), [1]);
        // A huge one may use no more than the limit.
        budget.spend(2, u64::MAX, IMAGE as usize + 1);
        assert!(!budget.allows(2, u64::MAX));
    }

    #[test]
    fn many_images_share_a_budget() {
        let mut budget = Budget::default();
        let allowed = (0..1000).filter(|&image| {
            let is_allowed = budget.allows(image, 1 << 20);
            if is_allowed {
                budget.spend(image, 1 << 20, IMAGE as usize);
            }
            is_allowed
        });
        assert_eq!(allowed.count(), (ALL / IMAGE) as usize + 1);
        assert_eq!(budget.over().count(), 1000 - (ALL / IMAGE) as usize - 1);
    }
}
