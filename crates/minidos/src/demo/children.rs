//! The node processes: started, listened to, and always reaped.

use core::time::Duration;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::options::Options;
use crate::control::{Command, Notice, hear, say};

/// What came from a node, by its number.
#[derive(Debug)]
pub(super) enum Heard {
    /// A notice.
    Notice(u16, Notice),
    /// It said something else.
    Nonsense(u16),
    /// Its output ended, as it does when the process ends.
    Closed(u16),
}

/// All node processes. Dropped, it kills and reaps those that still run.
#[derive(Debug)]
pub(super) struct Children {
    running: Vec<Running>,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    input: Option<ChildStdin>,
}

impl Children {
    pub(super) fn new() -> Self {
        let (tell, heard) = channel();
        Self { running: Vec::new(), heard, tell }
    }

    /// Starts the next node; the first is number 1.
    pub(super) fn start(&mut self, options: &Options) -> io::Result<()> {
        let (program, arguments) = &options.node_program;
        let next = u16::try_from(self.running.len() + 1).unwrap_or(u16::MAX);
        let mut command = match options.place(next) {
            None => Program::new(program),
            Some(place) => {
                let mut command = Program::new("ip");
                command.args(["netns", "exec", &place.namespace]).arg(program);
                command
            }
        };
        let mut process = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        self.running.push(Running { process, input });
        let node = u16::try_from(self.running.len()).unwrap_or(u16::MAX);
        if let Some(output) = output {
            let tell = self.tell.clone();
            let listen = move || listen(node, output, &tell);
            std::thread::Builder::new().name(format!("node-{node}")).spawn(listen)?;
        }
        Ok(())
    }

    /// Tells one node something.
    pub(super) fn tell(&mut self, node: u16, command: &Command) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let running = self.running.get_mut(usize::from(node) - 1).ok_or_else(gone)?;
        say(running.input.as_mut().ok_or_else(gone)?, command)
    }

    /// What came, if something does within `limit`.
    pub(super) fn hear(&self, limit: Duration) -> Option<Heard> {
        self.heard.recv_timeout(limit).ok()
    }

    /// A node that has ended by now, and how: one that was killed before those that ended because they missed it.
    pub(super) fn ended(&mut self) -> Option<(u16, ExitStatus)> {
        let ended = (1..).zip(&mut self.running).filter_map(|(node, running)| {
            let status = running.process.try_wait().ok().flatten()?;
            Some((node, status))
        });
        ended.min_by_key(|(_, status)| status.code().is_some())
    }

    /// Lets all end by themselves, but waits no longer than `limit` for the next to do so.
    pub(super) fn finish(mut self, limit: Duration) -> io::Result<()> {
        for running in &mut self.running {
            running.input = None;
        }
        let mut open = self.running.len();
        while open > 0 {
            match self.hear(limit) {
                Some(Heard::Closed(_)) => open -= 1,
                Some(Heard::Notice(..) | Heard::Nonsense(_)) => {}
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        for running in &mut self.running {
            running.process.wait()?;
        }
        self.running.clear();
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for running in &mut self.running {
            // One that has ended meanwhile cannot be killed, and is reaped all the same.
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
    }
}

fn listen(node: u16, output: ChildStdout, tell: &Sender<Heard>) {
    let mut output = BufReader::new(output);
    let last = loop {
        match hear(&mut output) {
            Ok(Some(notice)) => {
                if tell.send(Heard::Notice(node, notice)).is_err() {
                    return;
                }
            }
            Ok(None) => break Heard::Closed(node),
            Err(_) => break Heard::Nonsense(node),
        }
    };
    // The supervisor may have ended before; then nobody wants to know.
    let _ = tell.send(last);
}
