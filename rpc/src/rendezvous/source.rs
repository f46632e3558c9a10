//! The memory from which a message is sent.

use pronto_core::fabric::{Memory, Region};

/// Memory from which a message can be sent: a [`Region`], or a [`Memory`] of the program. No other type implements this trait.
pub trait MessageSource: Source {}

impl MessageSource for Region {}
impl MessageSource for Memory {}

mod sealed {
    use super::{Memory, Region};

    pub trait Source {
        fn region(&self) -> &Region;
    }

    impl Source for Region {
        fn region(&self) -> &Region {
            self
        }
    }

    impl Source for Memory {
        fn region(&self) -> &Region {
            Self::region(self)
        }
    }
}

use sealed::Source;
