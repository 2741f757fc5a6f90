//! How many images are known at once. Whoever maps files chooses their names and how many there are,
//! so what is kept of those that no sample has hit is bounded by what is mapped, and all of them by
//! numbers.

use super::image::Image;

/// Name of memory without a file.
pub const ANONYMOUS: &str = "//anon";

/// Name of what is beyond the limits.
const BEYOND: &str = "[too many mappings]";

/// Images that no sample has hit are swept when there are so many, or their names take so many
/// bytes, but not before there are twice as many as were left the last time.
const SWEEP_IMAGES: usize = 4096;
const SWEEP_BYTES: usize = 4 << 20;

/// Most images, and bytes of their names.
const MAX_IMAGES: usize = 1 << 17;
const MAX_BYTES: usize = 32 << 20;

/// Images, and bytes of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    images: usize,
    bytes: usize,
}

impl Size {
    fn of(image: &Image) -> Size {
        Size { images: 1, bytes: image.path.len() }
    }

    fn add(&mut self, other: Size) {
        (self.images, self.bytes) = (self.images + other.images, self.bytes + other.bytes);
    }

    fn sub(&mut self, other: Size) {
        self.images = self.images.saturating_sub(other.images);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    fn is_beyond(self, limit: Size) -> bool {
        self.images >= limit.images || self.bytes >= limit.bytes
    }
}

/// The room that there is for images.
#[derive(Debug, Default)]
pub struct Room {
    /// All images.
    all: Size,
    /// Those that no sample has hit.
    unseen: Size,
    /// Of those after the last sweep.
    left: Size,
    /// Places of images that were forgotten.
    free: Vec<u32>,
    /// The image of all that is beyond the limits, and how often it was meant.
    beyond: Option<u32>,
    left_out: u64,
}

impl Room {
    /// Puts an image somewhere, or takes that for those beyond the limits; also returns whether it is
    /// the image itself.
    pub fn place(&mut self, images: &mut Vec<Image>, image: Image) -> (u32, bool) {
        if self.all.is_beyond(Size { images: MAX_IMAGES, bytes: MAX_BYTES }) {
            self.left_out += 1;
            let beyond = self.beyond.get_or_insert_with(|| {
                images.push(Image::unreadable(BEYOND));
                images.len() as u32 - 1
            });
            return (*beyond, false);
        }
        let size = Size::of(&image);
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

    /// A sample has hit an image for the first time.
    pub fn is_hit(&mut self, image: &Image) {
        self.unseen.sub(Size::of(image));
    }

    /// It is time to sweep.
    pub fn is_scarce(&self) -> bool {
        self.unseen.is_beyond(Size {
            images: SWEEP_IMAGES.max(self.left.images * 2),
            bytes: SWEEP_BYTES.max(self.left.bytes * 2),
        })
    }

    /// Nothing is in this place.
    pub fn is_free(&self, at: u32, image: &Image) -> bool {
        self.beyond == Some(at) || image.path.is_empty()
    }

    /// Forgets an image that no sample has hit.
    pub fn free(&mut self, at: u32, image: &mut Image) {
        let size = Size::of(image);
        self.all.sub(size);
        self.unseen.sub(size);
        *image = Image::forgotten();
        self.free.push(at);
    }

    /// All that is not mapped was forgotten.
    pub fn swept(&mut self) {
        self.left = self.unseen;
    }

    /// How often an image was not told apart.
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
    fn what_is_neither_mapped_nor_hit_takes_no_memory() {
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
    fn what_is_mapped_has_a_limit_and_is_counted_beyond() {
        let mut images = Images::default();
        let all = MAX_BYTES / 501 + 1000;
        for n in 0..all {
            if images.are_many() {
                images.sweep(0..n as u32);
            }
            intern(&mut images, n);
        }
        assert!(images.left_out() > 0 && images.len() < all);
        let (first, beyond) = (intern(&mut images, 0), intern(&mut images, all));
        assert_eq!(first, 0, "what is known stays");
        assert_eq!(images.load(beyond, Hit { pid: 1, start: 0, end: 0 }), beyond);
        assert!(matches!(images.get(beyond).state, State::Unreadable));
    }
}
