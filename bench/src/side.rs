//! The other sides of experiments: hidden commands that child processes run.

use core::error::Error;
use core::str::FromStr;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::child;
use crate::cosched::{local, rank};
use crate::experiments::{adaptive, comm_fig2};
use crate::overlap::{burn, ping};
use crate::placement::{Cpu, pin};
use crate::rendezvous::{receiver, stream};
use crate::tls::links;
use crate::{bulk, echo, expedite, mix, sessions, strangers, traffic};

/// A hidden command.
#[derive(Debug)]
pub(crate) struct Side {
    /// Name of the command.
    pub(crate) name: &'static str,
    /// Names of its arguments, all of which are required.
    pub(crate) arguments: &'static [&'static str],
    /// Name of the arguments that may follow, if there are any.
    pub(crate) more: Option<&'static str>,
    /// Serves until the parent ends the process.
    pub(crate) run: fn(&Arguments<'_>) -> anyhow::Result<()>,
}

/// Every other side.
const ALL: [&Side; 18] = [
    &echo::SIDE,
    &adaptive::SIDE,
    &mix::SIDE,
    &comm_fig2::SIDE,
    &traffic::SIDE,
    &bulk::receiver::SIDE,
    &receiver::SIDE,
    &burn::SIDE,
    &ping::SIDE,
    &sessions::ACCEPTOR,
    &sessions::PEERS,
    &stream::SIDE,
    &expedite::HANDLER,
    &expedite::LOAD,
    &links::SIDE,
    &strangers::SIDE,
    &local::SIDE,
    &rank::SIDE,
];

/// Returns the side with that name.
pub(crate) fn find(name: &str) -> Option<&'static Side> {
    ALL.into_iter().find(|side| side.name == name)
}

/// Returns the hidden commands.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    ALL.into_iter().map(|side| {
        // A number may be negative.
        let required =
            side.arguments.iter().map(|name| Arg::new(*name).required(true).allow_hyphen_values(true));
        let more = side.more.map(|name| Arg::new(name).action(ArgAction::Append).num_args(0..));
        Command::new(side.name).hide(true).args(required).args(more)
    })
}

impl Side {
    /// Runs the side in this process, which ends with its parent.
    pub(crate) fn serve(&self, options: &ArgMatches) -> anyhow::Result<()> {
        child::end_with_parent()?;
        (self.run)(&Arguments(options))
    }
}

/// Arguments of a side.
#[derive(Debug)]
pub(crate) struct Arguments<'a>(&'a ArgMatches);

impl Arguments<'_> {
    /// Returns the text of an argument.
    pub(crate) fn text(&self, name: &str) -> anyhow::Result<&str> {
        Ok(self.0.get_one::<String>(name).with_context(|| format!("the argument {name} is missing"))?)
    }

    /// Returns the value of an argument.
    pub(crate) fn get<T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>>(
        &self,
        name: &str,
    ) -> anyhow::Result<T> {
        let text = self.text(name)?;
        let value = text.parse::<T>().map_err(|error| anyhow::Error::from_boxed(error.into()));
        value.with_context(|| format!("invalid {name}: {text}"))
    }

    /// Returns the CPU that an argument names.
    pub(crate) fn cpu(&self, name: &str) -> anyhow::Result<Cpu> {
        Ok(Cpu(self.get(name)?))
    }

    /// Returns the arguments that follow the required ones.
    pub(crate) fn more(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get_many::<String>(name).into_iter().flatten().map(String::as_str)
    }
}

/// Pins this process to `cpu`. The cost of a wake-up is measured before that, because the result has to hold for two CPUs.
pub(crate) fn settle(cpu: Cpu) -> anyhow::Result<()> {
    let _measured = pronto_node::wake_up_cost();
    pin(cpu)
}
