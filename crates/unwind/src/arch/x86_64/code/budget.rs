//! Limits of the time that the analysis of code takes, for each image and for the recording.

use rustc_hash::FxHashMap;

/// Steps of one image, at first and at most: half a second. A step is a decoded instruction and its
/// evaluations, 250 ns.
const IMAGE: i64 = 1 << 21;

/// Steps of all images: three seconds.
const ALL: i64 = 12 << 20;

/// Steps that each lookup adds: 6 µs. So code that is recorded for a long time is analysed, and
/// hostile code costs no more than other code.
const REFILL: i64 = 24;

/// What is left for an image.
#[derive(Clone, Copy)]
struct Left {
    steps: i64,
    /// A lookup was refused.
    is_over: bool,
}

/// Remaining steps.
pub struct Budget {
    images: FxHashMap<u32, Left>,
    all: i64,
    /// Limit of each image.
    most: i64,
    /// Number of steps that were spent.
    pub spent: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(IMAGE)
    }
}

impl Budget {
    /// A budget of this number of steps for each image.
    pub fn new(most: i64) -> Budget {
        Budget { images: FxHashMap::default(), all: ALL, most, spent: 0 }
    }

    fn image(&mut self, image: u32) -> &mut Left {
        let steps = self.most;
        self.images.entry(image).or_insert(Left { steps, is_over: false })
    }

    /// A lookup in an image begins.
    pub fn refill(&mut self, image: u32) {
        let most = self.most;
        let left = self.image(image);
        left.steps = (left.steps + REFILL).min(most);
        self.all = (self.all + REFILL).min(ALL);
    }

    /// Counts steps.
    pub fn spend(&mut self, image: u32, steps: usize) {
        self.image(image).steps -= steps as i64;
        self.all -= steps as i64;
        self.spent += steps as u64;
    }

    /// True if nothing is left for an image.
    pub fn is_spent(&self, image: u32) -> bool {
        self.all < 0 || self.images.get(&image).is_some_and(|left| left.steps < 0)
    }

    /// True if something is left for an image; otherwise the lookup is refused.
    pub fn allows(&mut self, image: u32) -> bool {
        let is_spent = self.is_spent(image);
        self.image(image).is_over |= is_spent;
        !is_spent
    }

    /// Images in which lookups were refused.
    pub fn over(&self) -> impl Iterator<Item = u32> {
        self.images.iter().filter(|(_, left)| left.is_over).map(|(&image, _)| image)
    }
}
