//! Makes calls of 32 bytes between two nodes of one process; `cargo xtask test` traces them to check the path in ARCHITECTURE.md.

use core::time::Duration;

use pronto::{Message, Node};

/// Number of calls. A function that runs less often is not on the path of each call.
const CALLS: u32 = 1_000;

#[derive(Message)]
#[message(name = "traced.reply")]
struct Reply {
    bytes: [u8; 32],
}

#[derive(Message)]
#[message(name = "traced.request", reply = Reply)]
struct Request {
    bytes: [u8; 32],
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let address = format!("shm:@pronto-traced-call-{}", std::process::id());
    let _callee = Node::builder(1)
        .listen(&address)
        .handle_inline(|_, request: Request| Reply { bytes: request.bytes })
        .start()?;
    let caller = Node::builder(2).peer(1, &address).start()?;
    let callee = caller.wait_for_peer(1, Duration::from_secs(30))?;
    for _ in 0..CALLS {
        let request = Request { bytes: [7; 32] };
        if callee.call(&request)?.bytes != request.bytes {
            return Err("the reply differs from the request".into());
        }
    }
    println!("{CALLS}");
    Ok(())
}
