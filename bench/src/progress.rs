//! How far a run is, on stderr: a bar on a terminal, else a plain line now and then.

use core::time::Duration;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::clock;

/// Progress of one experiment; says nothing in the first two seconds, so that short runs stay silent.
#[derive(Debug)]
pub struct Progress {
    name: &'static str,
    bar: Option<ProgressBar>,
    quiet_until: Instant,
    done: u64,
    total: u64,
}

impl Progress {
    /// Progress of the experiment `name`, on stderr.
    #[must_use]
    pub fn on_stderr(name: &'static str) -> Self {
        Self {
            name,
            bar: io::stderr().is_terminal().then(new_bar),
            quiet_until: clock::now() + QUIET,
            done: 0,
            total: 0,
        }
    }

    /// Fixes the number of steps; steps begun before are forgotten.
    pub fn begin(&mut self, total: u64) {
        (self.done, self.total) = (0, total);
    }

    /// Begins the next step, named `what`.
    pub fn step(&mut self, what: &str) {
        let done = self.done;
        self.done += 1;
        let now = clock::now();
        if now < self.quiet_until {
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_length(self.total);
                bar.set_position(done);
                bar.set_message(format!("{} {what}", self.name));
            }
            None => {
                self.quiet_until = now + QUIET;
                // Nobody may be reading stderr; a measurement does not fail for that.
                let _ = writeln!(io::stderr(), "{}: {done} of {} done, now {what}", self.name, self.total);
            }
        }
    }

    /// Clears the bar, so that the result stands alone.
    pub fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.with_style(style.expect("the template is a constant that parses"))
}

/// Shorter runs need no progress, and a log needs no more lines than this allows.
const QUIET: Duration = Duration::from_secs(2);
