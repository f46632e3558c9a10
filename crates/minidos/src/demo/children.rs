//! The node processes: starts them, reads their output, and always reaps them.

use core::time::Duration;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::options::Options;
use crate::control::{Command, Notice, read_line, write_line};

/// Output of a node process, with the node's number.
#[derive(Debug)]
pub(super) enum NodeOutput {
    /// A notice that the node sent.
    Notice(u16, Notice),
    /// A line that is not a notice.
    Malformed(u16),
    /// The end of the output, which usually means that the process has ended.
    Closed(u16),
}

/// All node processes. Dropping it kills and reaps those that still run.
#[derive(Debug)]
pub(super) struct Children {
    running: Vec<Running>,
    outputs: Receiver<NodeOutput>,
    sender: Sender<NodeOutput>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    input: Option<ChildStdin>,
}

impl Children {
    pub(super) fn new() -> Self {
        let (sender, outputs) = channel();
        Self { running: Vec::new(), outputs, sender }
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
            let sender = self.sender.clone();
            let listen = move || listen(node, output, &sender);
            std::thread::Builder::new().name(format!("node-{node}")).spawn(listen)?;
        }
        Ok(())
    }

    /// Sends a command to one node.
    pub(super) fn send(&mut self, node: u16, command: &Command) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let running = self.running.get_mut(usize::from(node) - 1).ok_or_else(gone)?;
        write_line(running.input.as_mut().ok_or_else(gone)?, command)
    }

    /// Waits up to `limit` for the next output of any node.
    pub(super) fn receive(&self, limit: Duration) -> Option<NodeOutput> {
        self.outputs.recv_timeout(limit).ok()
    }

    /// Returns a node that has ended, and its exit status. A node that was killed has priority over nodes that exited by
    /// themselves, because they may have exited only because it was gone.
    pub(super) fn ended(&mut self) -> Option<(u16, ExitStatus)> {
        let ended = (1..).zip(&mut self.running).filter_map(|(node, running)| {
            let status = running.process.try_wait().ok().flatten()?;
            Some((node, status))
        });
        ended.min_by_key(|(_, status)| status.code().is_some())
    }

    /// Closes the input of all nodes and waits until all have ended. Fails if none ends within `limit` of the last one.
    pub(super) fn finish(mut self, limit: Duration) -> io::Result<()> {
        for running in &mut self.running {
            running.input = None;
        }
        let mut open = self.running.len();
        while open > 0 {
            match self.receive(limit) {
                Some(NodeOutput::Closed(_)) => open -= 1,
                Some(NodeOutput::Notice(..) | NodeOutput::Malformed(_)) => {}
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
            // A process that has ended meanwhile cannot be killed, but must still be reaped.
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
    }
}

fn listen(node: u16, output: ChildStdout, sender: &Sender<NodeOutput>) {
    let mut output = BufReader::new(output);
    let last = loop {
        match read_line(&mut output) {
            Ok(Some(notice)) => {
                if sender.send(NodeOutput::Notice(node, notice)).is_err() {
                    return;
                }
            }
            Ok(None) => break NodeOutput::Closed(node),
            Err(_) => break NodeOutput::Malformed(node),
        }
    };
    // Fails if the supervisor has ended; then nothing is left to do.
    let _ = sender.send(last);
}
