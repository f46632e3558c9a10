//! Echo calls over other projects' libraries, for `pronto-bench peers`: one round, one caller, one server process. With `bulk` as the
//! first argument, long messages for `pronto-bench bulk`.
//!
//! `pronto-peers PEER SETTING ROUND_MS CALLER_CPU SERVER_CPU` starts a server (this program again), calls it for a round, and prints
//! its results as lines (`bench/src/peers/` in Pronto reads them). With a setting of tonic that ends in `-tls`, it makes certificates for
//! both processes first. The lines:
//!
//! ```text
//! version WORD WORD...     version of the library
//! single NS COUNT          COUNT calls, timed one by one, took NS each
//! batch CALLS NS           CALLS calls in a row took NS together
//! load CALLS NS            CALLS calls, with up to WINDOW of them open, took NS together
//! size BYTES               the calls of the lines that follow have payloads of this length; before, they have 32 bytes
//! ```

#![forbid(unsafe_code)]

mod bulk;
mod certificates;
mod grpc;
mod iceoryx;
mod rounds;
mod server;
mod tarpc_echo;

use core::time::Duration;
use std::env;

use anyhow::{Context as _, bail};

/// Number of open requests under load.
const WINDOW: usize = 32;

/// Lengths of payloads. Calls of the first length are also made with several open.
const SIZES: [usize; 4] = [32, 224, 4096, 65_536];

/// Value of each byte.
const BYTE: u8 = 7;

/// Checks both ends of an echo: a comparison of all bytes of a page would take as long as a copy.
fn check(echo: &[u8], size: usize) -> anyhow::Result<()> {
    let ends = echo.first_chunk::<32>().zip(echo.last_chunk::<32>());
    let same = ends.is_some_and(|(first, last)| [first, last] == [&[BYTE; 32]; 2]);
    anyhow::ensure!(echo.len() == size && same, "an echo differs from what was sent");
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", peer, setting, cpu, size] => {
            let size = size.parse().context("invalid length")?;
            server::pin(cpu.parse().context("invalid CPU number")?)?;
            server::end_with_parent();
            match peer {
                "tarpc" => tarpc_echo::serve(setting),
                "tonic" => grpc::serve(setting),
                "iceoryx2" => iceoryx::serve(setting, size),
                "bulk" => bulk::serve(setting.parse().context("invalid number of buffers")?, size),
                _ => bail!("unknown peer: {peer}"),
            }
        }
        ["bulk", "iceoryx2", round, sender, cpu, ref cells @ ..] => {
            server::pin(sender.parse().context("invalid CPU number")?)?;
            bulk::send(
                Duration::from_millis(round.parse().context("invalid number of milliseconds")?),
                cpu,
                cells,
            )
        }
        [peer, setting, round, caller, cpu] => {
            let round = Duration::from_millis(round.parse().context("invalid number of milliseconds")?);
            server::pin(caller.parse().context("invalid CPU number")?)?;
            let certificates = setting.ends_with("-tls").then(certificates::Folder::create).transpose()?;
            let mut version = format!("{peer} {}", version_of(peer));
            let mut setting = setting.to_owned();
            if let Some(folder) = &certificates {
                version = format!("{version}, rustls {}", version_of("rustls"));
                setting = format!("{setting}:{}", folder.path.display());
            }
            let setting = setting.as_str();
            println!("version {version}");
            for size in SIZES {
                let server = server::Server::spawn([peer, setting, cpu, &size.to_string()])?;
                if size != SIZES[0] {
                    println!("size {size}");
                }
                match peer {
                    "tarpc" => tarpc_echo::call(setting, &server.address, round, size)?,
                    "tonic" => grpc::call(setting, &server.address, round, size)?,
                    "iceoryx2" => iceoryx::call(setting, &server.address, round, size)?,
                    _ => bail!("unknown peer: {peer}"),
                }
            }
            Ok(())
        }
        _ => bail!("usage: pronto-peers PEER SETTING ROUND_MS CALLER_CPU SERVER_CPU"),
    }
}

/// Returns the version of a package, from the lock file of this program's build.
fn version_of(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("\nname = \"{package}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1));
    version.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

/// Returns the runtime of a setting: `default` is that of `#[tokio::main]`, `best` runs everything in one thread.
fn runtime(setting: &str) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = match setting {
        "default" => tokio::runtime::Builder::new_multi_thread(),
        "best" => tokio::runtime::Builder::new_current_thread(),
        _ => bail!("no such setting: {setting}"),
    };
    builder.enable_all().build().context("starting a runtime")
}
