//! The BPF scheduler of `kernel/scx`: its server runs while handlers may connect, and the scheduler only while their rows are measured,
//! because it replaces the scheduler of the whole machine.

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use nix::errno::Errno;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_expedite::scx::{Counters, Prediction, PredictionTerms, SOCKET};
use pronto_sched_policy::policy::weight::Weight;
use pronto_scx::{Flags, Loaded, Messages, Server, Settings};

/// Class of the serving thread, so that it loads the scheduler although other processes compute. It sleeps while messages are measured.
const CLASS: Class = Class::Fifo(1);

/// Time between two checks for a command.
const TURN: Duration = Duration::from_millis(50);

/// A command for the serving thread.
#[derive(Clone, Copy, Debug)]
enum Command {
    Load,
    Unload,
}

/// The server and its scheduler; both end when this is dropped.
#[derive(Debug)]
pub(crate) struct Scheduler {
    commands: Option<Sender<Command>>,
    done: Receiver<anyhow::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Flags and weights while the kernel's own scheduler runs. The server keeps them for the next load.
struct Unloaded;

impl Flags for Unloaded {
    fn flag(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn unflag(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn weigh(&self, _: BorrowedFd<'_>, _: Weight) -> Result<(), Errno> {
        Ok(())
    }

    fn predict(&self, _: u32, _: &PredictionTerms) -> Result<(), Errno> {
        Ok(())
    }

    fn forget(&self, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn prediction(&self, _: u32) -> Result<Prediction, Errno> {
        Err(Errno::ENOENT)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Scheduler {
    /// Starts the server. Fails if the scheduler of that object file cannot be loaded.
    pub(crate) fn start(object: &Path) -> anyhow::Result<Self> {
        let object = object.to_owned();
        let ((commands, receiver), (sender, done)) = (channel(), channel());
        let thread = thread::Builder::new().name("scheduler".into()).spawn(move || {
            let failed = serve(&object, &receiver, &sender).err();
            // A caller that has gone needs no result.
            let _gone = failed.map(|error| sender.send(Err(error)));
        });
        let thread = Some(thread.context("starting a thread")?);
        let scheduler = Self { commands: Some(commands), done, thread };
        scheduler.load()?;
        scheduler.unload()?;
        Ok(scheduler)
    }

    pub(crate) fn load(&self) -> anyhow::Result<()> {
        self.command(Command::Load)
    }

    pub(crate) fn unload(&self) -> anyhow::Result<()> {
        self.command(Command::Unload)
    }

    fn command(&self, command: Command) -> anyhow::Result<()> {
        if let Some(commands) = &self.commands {
            // The thread reports why it has ended.
            let _ended = commands.send(command);
        }
        self.done.recv().context("the thread of the scheduler has ended")?
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ended = thread.join();
        }
    }
}

/// Serves until there are no more commands, and reports the result of each.
fn serve(
    object: &Path,
    commands: &Receiver<Command>,
    done: &Sender<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    schedule(CALLER, CLASS).context("scheduling a thread")?;
    let mut server = Server::listen(Path::new(SOCKET), None)?;
    let mut loaded = None;
    loop {
        match commands.try_recv() {
            Ok(Command::Load) => {
                let scheduler = Loaded::load(object, &Settings::default(), Messages::Hidden)?;
                server.flag_again(&scheduler);
                loaded = Some(scheduler);
                let _gone = done.send(Ok(()));
            }
            Ok(Command::Unload) => {
                let exit = loaded.take().and_then(|scheduler: Loaded| scheduler.exit());
                let ended = exit.map(|exit| anyhow::anyhow!("the kernel ended the scheduler: {exit}"));
                let _gone = done.send(ended.map_or(Ok(()), Err));
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => match &loaded {
                Some(scheduler) => server.turn(TURN, scheduler)?,
                None => server.turn(TURN, &Unloaded)?,
            },
        }
    }
}
