//! Blocks of up to 64 items in one flat vector, addressed by `u32`. A block's room is its item
//! count rounded up to a power of two; rooms given back are kept by size and used again.

/// Rooms of 1, 2, 4 ... 64 items.
const CLASSES: usize = 7;

#[derive(Clone)]
pub(super) struct Blocks<T> {
    items: Vec<T>,
    free: [Vec<u32>; CLASSES],
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Default::default() }
    }
}

impl<T: Copy + Default> Blocks<T> {
    #[inline]
    pub(super) fn get(&self, at: u32) -> &T {
        &self.items[at as usize]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.items[at as usize]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<T>() + free * size_of::<u32>()
    }

    /// A block of `count` default items, at least one.
    pub(super) fn allocate(&mut self, count: u32) -> u32 {
        self.free[class(count)].pop().unwrap_or_else(|| {
            let at = self.items.len();
            self.items.resize(at + room(count) as usize, T::default());
            at as u32
        })
    }

    /// Puts `item` at `index` of the block of `count` items at `at` (any place if `count` is 0),
    /// and returns where the block is then.
    pub(super) fn insert(&mut self, at: u32, count: u32, index: u32, item: T) -> u32 {
        let to = self.resize(at, count, count + 1);
        let block = &mut self.items[to as usize..=(to + count) as usize];
        block.copy_within(index as usize..count as usize, index as usize + 1);
        block[index as usize] = item;
        to
    }

    /// Takes the item at `index` out, and returns where the block is then; the place of an
    /// empty block means nothing.
    pub(super) fn remove(&mut self, at: u32, count: u32, index: u32) -> u32 {
        let block = &mut self.items[at as usize..(at + count) as usize];
        block.copy_within(index as usize + 1.., index as usize);
        self.resize(at, count, count - 1)
    }

    /// Moves a block to a room for `to_count` items if its own does not fit.
    fn resize(&mut self, at: u32, count: u32, to_count: u32) -> u32 {
        let (from, to) = (room(count), room(to_count));
        if from == to {
            return at;
        }
        let mut to_at = 0;
        if to > 0 {
            to_at = self.allocate(to_count);
            let kept = count.min(to_count);
            self.items.copy_within(at as usize..(at + kept) as usize, to_at as usize);
        }
        if from > 0 {
            self.free[class(count)].push(at);
        }
        to_at
    }
}

fn room(count: u32) -> u32 {
    if count == 0 { 0 } else { count.next_power_of_two() }
}

fn class(count: u32) -> usize {
    room(count).trailing_zeros() as usize
}
