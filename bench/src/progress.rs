//! Progress of a run on stderr: a bar on a terminal, otherwise plain lines.

use core::time::Duration;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::clock;

/// Progress of one experiment; silent in the first two seconds, and so in short runs.
#[derive(Debug)]
pub(crate) struct Progress {
    name: &'static str,
    bar: Option<ProgressBar>,
    quiet_until: Instant,
    done: u64,
    total: u64,
}

impl Progress {
    /// Returns the progress of the experiment `name`, on stderr.
    pub(crate) fn on_stderr(name: &'static str) -> Self {
        Self {
            name,
            bar: io::stderr().is_terminal().then(new_bar),
            quiet_until: clock::now() + QUIET,
            done: 0,
            total: 0,
        }
    }

    /// Sets the number of steps, and restarts with the first.
    pub(crate) fn begin(&mut self, total: u64) {
        (self.done, self.total) = (0, total);
    }

    /// Begins the next step, named `step`.
    pub(crate) fn step(&mut self, step: &str) {
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
                bar.set_message(format!("{} {step}", self.name));
            }
            None => {
                self.quiet_until = now + QUIET;
                // A closed stderr does not fail a measurement.
                let _ = writeln!(io::stderr(), "{}: {done} of {} done, now {step}", self.name, self.total);
            }
        }
    }

    /// Shows what the step does right now, on a terminal only.
    pub(crate) fn detail(&self, text: &str) {
        if let Some(bar) = &self.bar {
            let message = bar.message();
            let step = message.split(" | ").next().unwrap_or_default();
            bar.set_message(format!("{step} | {text}"));
        }
    }

    /// Writes a line that stays.
    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => {
                // A closed stderr does not fail a measurement.
                let _ = writeln!(io::stderr(), "{text}");
            }
        }
    }

    /// Clears the bar before the result is printed.
    pub(crate) fn finish(&mut self) {
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

/// Time without progress at the start, and between two lines in a log.
const QUIET: Duration = Duration::from_secs(2);
