//! Limits of the number of images. Processes choose the names and the number of the files that they
//! map, so images without samples are bounded by the number of mappings, and all of them by
//! constants.

use super::image::Image;

/// Name of memory without a file.
pub const ANONYMOUS: &str = "//anon";

/// Name of the image beyond the limits.
const BEYOND: &str = "[too many mappings]";

/// Images without samples are swept above this number, or this many bytes of names, but not before
/// their number has doubled since the last sweep.
const SWEEP_IMAGES: usize = 4096;
const SWEEP_BYTES: usize = 4 << 20;

/// Most images, and most bytes of their names.
const MAX_IMAGES: usize = 1 << 17;
const MAX_BYTES: usize = 32 << 20;

/// Number of images, and bytes of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ImageUse {
    images: usize,
    bytes: usize,
}

impl ImageUse {
    fn new(image: &Image) -> ImageUse {
        ImageUse { images: 1, bytes: image.path.len() }
    }

    fn add(&mut self, other: ImageUse) {
        (self.images, self.bytes) = (self.images + other.images, self.bytes + other.bytes);
    }

    fn sub(&mut self, other: ImageUse) {
        self.images = self.images.saturating_sub(other.images);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    fn is_beyond(self, limit: ImageUse) -> bool {
        self.images >= limit.images || self.bytes >= limit.bytes
    }
}

/// Space that is used by images.
#[derive(Debug, Default)]
pub struct ImageLimits {
    /// All images.
    all: ImageUse,
    /// Images without samples.
    unseen: ImageUse,
    /// Images without samples after the last sweep.
    left: ImageUse,
    /// Indices of forgotten images.
    free: Vec<u32>,
    /// The image for everything beyond the limits, and the number of times that it was returned.
    beyond: Option<u32>,
    left_out: u64,
}

impl ImageLimits {
    /// Stores an image, or returns that for images beyond the limits; also returns true if it is
    /// the image itself.
    pub fn place(&mut self, images: &mut Vec<Image>, image: Image) -> (u32, bool) {
        if self.all.is_beyond(ImageUse { images: MAX_IMAGES, bytes: MAX_BYTES }) {
            self.left_out += 1;
            let beyond = self.beyond.get_or_insert_with(|| {
                images.push(Image::unreadable(BEYOND));
                images.len() as u32 - 1
            });
            return (*beyond, false);
        }
        let size = ImageUse::new(&image);
        self.all.add(size);
        self.unseen.add(size);
        match self.free.pop() {
            Some(at) => {
                images[at as usize] = image;
                (at, true)
            }
            None => {
                images.push(image);
                (images.len() as u32 - 1, true)
            }
        }
    }

    /// Counts the first sample of an image.
    pub fn is_hit(&mut self, image: &Image) {
        self.unseen.sub(ImageUse::new(image));
    }

    /// True if a sweep is due.
    pub fn is_scarce(&self) -> bool {
        self.unseen.is_beyond(ImageUse {
            images: SWEEP_IMAGES.max(self.left.images * 2),
            bytes: SWEEP_BYTES.max(self.left.bytes * 2),
        })
    }

    /// True if this index is free.
    pub fn is_free(&self, at: u32, image: &Image) -> bool {
        self.beyond == Some(at) || image.path.is_empty()
    }

    /// Forgets an image without samples.
    pub fn free(&mut self, at: u32, image: &mut Image) {
        let size = ImageUse::new(image);
        self.all.sub(size);
        self.unseen.sub(size);
        *image = Image::forgotten();
        self.free.push(at);
    }

    /// Ends a sweep: all unmapped images were forgotten.
    pub fn swept(&mut self) {
        self.left = self.unseen;
    }

    /// Number of times that the image beyond the limits was returned.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Hit, Images, State};
    use crate::record::FileId;

    fn intern(images: &mut Images, n: usize) -> u32 {
        images.intern(1, &format!("/{n:0500}"), &[], FileId { device: 1, inode: 7 })
    }

    #[test]
    fn images_neither_mapped_nor_sampled_take_no_memory() {
        let mut images = Images::default();
        let mapped = intern(&mut images, 0);
        let hit = intern(&mut images, 1);
        images.load(hit, Hit { pid: i32::MAX, start: 0, end: 0 });
        let mut sweeps = 0;
        for n in 2..100_000 {
            if images.are_many() {
                images.sweep([mapped].into_iter());
                sweeps += 1;
            }
            intern(&mut images, n);
        }
        assert!(images.len() <= SWEEP_IMAGES + 2, "{}", images.len());
        assert!((1..100).contains(&sweeps), "{sweeps}");
        assert_eq!((intern(&mut images, 0), intern(&mut images, 1)), (mapped, hit));
        assert_eq!(images.left_out(), 0);
    }

    #[test]
    fn mapped_images_have_a_limit_and_are_counted_beyond() {
        let mut images = Images::default();
        let all = MAX_BYTES / 501 + 1000;
        for n in 0..all {
            if images.are_many() {
                images.sweep(0..n as u32);
            }
            intern(&mut images, n);
        }
        assert!(images.left_out() > 0 && images.len() < all);
        let first = intern(&mut images, 0);
        let beyond = intern(&mut images, all);
        assert_eq!(first, 0, "an existing image stays");
        assert_eq!(images.load(beyond, Hit { pid: 1, start: 0, end: 0 }), beyond);
        assert!(matches!(images.get(beyond).state, State::Unreadable(_)));
    }
}
