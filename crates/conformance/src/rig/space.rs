//! Allocator for payloads: space that no outstanding work request uses.

use core::ops::Range;

/// Space in send memory or in a region, allocated in a circle.
#[derive(Debug)]
pub(super) struct Space {
    window: Range<usize>,
    alignment: usize,
    cursor: usize,
    taken: Vec<Range<usize>>,
}

impl Space {
    /// Creates an unused window. Allocations begin at multiples of `alignment`.
    pub(super) fn new(window: Range<usize>, alignment: usize) -> Self {
        Self { cursor: window.start, window, alignment, taken: Vec::new() }
    }

    /// Allocates only from `window` from now on.
    pub(super) fn move_to(&mut self, window: Range<usize>) {
        self.cursor = window.start;
        self.window = window;
    }

    /// Returns free space of this length, if available.
    pub(super) fn find(&self, len: usize) -> Option<Range<usize>> {
        [self.cursor, self.window.start].into_iter().find_map(|start| {
            let start = start.next_multiple_of(self.alignment);
            let found = start..start + len;
            let free = self.taken.iter().all(|taken| found.end <= taken.start || taken.end <= found.start);
            (found.end <= self.window.end && free).then_some(found)
        })
    }

    pub(super) fn take(&mut self, range: Range<usize>) {
        self.cursor = range.end;
        self.taken.push(range);
    }

    pub(super) fn give_back(&mut self, range: &Range<usize>) {
        self.taken.retain(|taken| taken != range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_free_space_is_allocated() {
        let mut space = Space::new(0..100, 64);
        let first = space.find(30).unwrap();
        space.take(first.clone());
        let second = space.find(30).unwrap();
        assert_eq!((first.clone(), second.clone()), (0..30, 64..94));
        space.take(second);
        assert_eq!(space.find(30), None);
        space.give_back(&first);
        assert_eq!(space.find(30), Some(0..30));
    }
}
