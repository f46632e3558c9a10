//! Messages in the kernel's log.

use core::fmt::{Arguments, Write};

use crate::bindings;

/// Maximum length of a message, bytes; the rest is cut off.
const LONGEST: usize = 160;

struct Line {
    text: [u8; LONGEST],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for (place, byte) in self.text.iter_mut().skip(self.length).zip(text.bytes()) {
            *place = byte;
            self.length = self.length.saturating_add(1);
        }
        Ok(())
    }
}

/// Writes an error message.
pub(crate) fn error(text: Arguments<'_>) {
    print(true, text);
}

/// Writes a message.
pub(crate) fn note(text: Arguments<'_>) {
    print(false, text);
}

fn print(is_error: bool, text: Arguments<'_>) {
    let mut line = Line { text: [0; LONGEST], length: 0 };
    // It never fails.
    let _ = line.write_fmt(text);
    // SAFETY: the text has that many bytes.
    unsafe { bindings::expedite_print(is_error, line.text.as_ptr(), line.length) };
}

/// Writes a message.
#[macro_export]
macro_rules! pr_info {
    ($($argument:tt)*) => {
        $crate::print::note(format_args!($($argument)*))
    };
}

/// Writes an error message.
#[macro_export]
macro_rules! pr_err {
    ($($argument:tt)*) => {
        $crate::print::error(format_args!($($argument)*))
    };
}
