//! The other process of the UCX test: sends the messages that the test asks for, and reports when each has left.
//!
//! ```text
//! <- address HEX       stdout: its own address
//! -> address HEX       stdin: that of its peer; it then sends a message of 1 byte and waits for one
//! <- ready             both directions are connected
//! -> send LENGTH       sends a message
//! <- posted LENGTH     the message is announced to the peer
//! <- completed LENGTH  the message has left: in a rendezvous, the peer has fetched it
//! ```

#![forbid(unsafe_code)]

use std::io::{self, BufRead as _};
use std::sync::mpsc::channel;

use pronto_foreign::ucx::Worker;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let (arrived, received) = channel();
    let mut worker = Worker::open(move |_| arrived.send(()).expect("main receives"))?;
    let hex: String = worker.address().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("address {hex}");
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("address", hex)) => {
                worker.connect(&bytes_of(hex)?)?;
                worker.send(&[0])?;
                while received.try_recv().is_err() {
                    worker.progress();
                }
                println!("ready");
            }
            Some(("send", length)) => {
                worker.send(&vec![7; length.parse()?])?;
                println!("posted {length}");
                while worker.unsent() > 0 {
                    worker.progress();
                }
                println!("completed {length}");
            }
            _ => return Err(format!("unknown command: {line}").into()),
        }
    }
    Ok(())
}

fn bytes_of(hex: &str) -> Result<Vec<u8>, core::num::ParseIntError> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("?"), 16)).collect()
}
