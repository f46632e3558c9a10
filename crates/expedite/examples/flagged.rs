//! Flags one end of a Unix socket and sends itself a message: `cargo run -p pronto-expedite --example flagged`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use pronto_expedite::{Device, Flag, THIS_THREAD};

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
    let helper = std::thread::spawn(move || sender.write_all(b"hello"));
    let mut bytes = [0; 5];
    receiver.read_exact(&mut bytes)?;
    helper.join().map_err(|_| "the sender panicked")??;
    // Without a wait nothing arrived for this thread: the message was there already.
    println!("{:?}", device.query(THIS_THREAD));
    Ok(())
}
