// SPDX-License-Identifier: GPL-2.0
//! Lists whose links are in their elements, so that an element is removed without a search.
//!
//! # Invariants
//! 1. In a list, `next` is an element or null, and `before` is what points to this element: the head, or the `next` of the
//!    element before. Outside of any list, `before` is null.

use core::ptr::null_mut;

/// The place of an element in a list of elements `T`.
pub(crate) struct Link<T> {
    next: *mut T,
    before: *mut *mut T,
}

/// An element of the list `N`.
pub(crate) trait Linked<const N: usize>: Sized {
    /// Returns the link of an element in this list.
    ///
    /// # Safety
    /// The element is valid.
    unsafe fn link(this: *mut Self) -> *mut Link<Self>;
}

impl<T> Link<T> {
    /// Returns the link of an element that is in no list.
    pub(crate) const fn none() -> Self {
        Self { next: null_mut(), before: null_mut() }
    }

    /// Returns whether the element is in a list.
    pub(crate) fn is_linked(&self) -> bool {
        !self.before.is_null()
    }

    /// Returns the element after this one, or null.
    pub(crate) fn next(&self) -> *mut T {
        self.next
    }
}

/// Puts an element at the begin of a list.
///
/// # Safety
/// Head and element are valid, the element is not in this list, and no other code accesses the list.
pub(crate) unsafe fn insert<T: Linked<N>, const N: usize>(head: *mut *mut T, element: *mut T) {
    // SAFETY: the caller guarantees that all of these are valid; [I1] `first` is an element or null.
    unsafe {
        let first = *head;
        let link = T::link(element);
        (*link).next = first;
        (*link).before = head;
        if !first.is_null() {
            (*T::link(first)).before = &raw mut (*link).next;
        }
        *head = element;
    }
}

/// Takes an element out of its list, if it is in it.
///
/// # Safety
/// The element is valid, and no other code accesses the list.
pub(crate) unsafe fn remove<T: Linked<N>, const N: usize>(element: *mut T) {
    // SAFETY: the caller guarantees that the element is valid; [I1] so are its neighbours.
    unsafe {
        let link = T::link(element);
        if (*link).before.is_null() {
            return;
        }
        let next = (*link).next;
        *(*link).before = next;
        if !next.is_null() {
            (*T::link(next)).before = (*link).before;
        }
        *link = Link::none();
    }
}
