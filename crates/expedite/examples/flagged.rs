//! Flags one end of a Unix socket and sends itself messages: `cargo run -p pronto-expedite --example flagged`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use nix::poll::{PollTimeout, poll};
use pronto_expedite::{Device, Flag, THIS_THREAD};

/// Number of messages, and pause before each in milliseconds, in which the receiver falls asleep.
const MESSAGES: usize = 10;
const PAUSE: u8 = 10;

fn main() -> ExitCode {
    match flagged() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flagged: {error}");
            ExitCode::FAILURE
        }
    }
}

fn flagged() -> Result<(), Box<dyn core::error::Error>> {
    let device = Device::open()?;
    let (mut receiver, mut sender) = UnixStream::pair()?;
    device.flag(&receiver, Flag::default())?;
    let helper = std::thread::spawn(move || {
        for _ in 0..MESSAGES {
            poll(&mut [], PollTimeout::from(PAUSE))?;
            sender.write_all(b"hello")?;
        }
        Ok::<_, std::io::Error>(())
    });
    for _ in 0..MESSAGES {
        receiver.read_exact(&mut [0; 5])?;
    }
    helper.join().map_err(|_| "the sender panicked")??;
    println!("{:?}", device.query(THIS_THREAD)?);
    Ok(())
}
