//! Up to 64 frames that go through the stages together.

use crate::frame::Frame;

/// Slots of a [`Batch`].
pub const BATCH: usize = 64;

/// Up to 64 frames, each in a slot that keeps its number until [`finish`](Batch::finish), so that
/// per-slot arrays beside the batch stay aligned with it. Made once, then reused.
pub struct Batch {
    slots: [Option<Frame>; BATCH],
    used: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch.
    pub const fn new() -> Batch {
        Batch { slots: [const { None }; BATCH], used: 0 }
    }

    /// Slots in use: frames pushed since the last [`finish`](Batch::finish), taken ones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no slot is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether all slots are in use.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used == BATCH
    }

    /// Slots still free.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.used
    }

    /// Puts a frame into the next slot and returns the slot's number, or the frame if all are in use.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<usize, Frame> {
        match self.slots.get_mut(self.used) {
            Some(slot) => {
                *slot = Some(frame);
                self.used += 1;
                Ok(self.used - 1)
            }
            None => Err(frame),
        }
    }

    /// The frame in slot `i`, if it is still there.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&Frame> {
        self.slots.get(i)?.as_ref()
    }

    /// The frame in slot `i`, if it is still there.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> Option<&mut Frame> {
        self.slots.get_mut(i)?.as_mut()
    }

    /// Takes the frame out of slot `i`.
    #[inline]
    pub fn take(&mut self, i: usize) -> Option<Frame> {
        self.slots.get_mut(i)?.take()
    }

    /// The frames that are still here, with their slots.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Frame)> {
        let slots = self.slots[..self.used].iter().enumerate();
        slots.filter_map(|(i, slot)| Some((i, slot.as_ref()?)))
    }

    /// The frames that are still here, with their slots.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Frame)> {
        let slots = self.slots[..self.used].iter_mut().enumerate();
        slots.filter_map(|(i, slot)| Some((i, slot.as_mut()?)))
    }

    /// Ends the round: every frame must have been taken. Returns how many were left over; they are
    /// sent home. Left-over frames are a bug of a stage: a panic in debug builds.
    pub fn finish(&mut self) -> usize {
        let left_over = self.slots[..self.used].iter_mut().filter_map(Option::take);
        let count = left_over.map(Frame::release).count();
        self.used = 0;
        debug_assert!(count == 0, "{count} frames left over in a batch");
        count
    }
}
