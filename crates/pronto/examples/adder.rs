//! Two processes, one message type: `adder serve` in one terminal, `adder` in another.

use core::time::Duration;

use pronto::{Message, Node};

#[derive(Message)]
#[message(name = "demo.sum")]
struct Sum {
    total: u64,
}

#[derive(Message)]
#[message(name = "demo.add", reply = Sum)]
struct Add {
    values: Vec<u64>,
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    const ADDRESS: &str = "shm:/tmp/adder.sock"; // or "tcp:127.0.0.1:7001"
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let _node = Node::builder(1)
            .listen(ADDRESS)
            .handle(|_, add: Add| Sum { total: add.values.iter().sum() })
            .start()?;
        loop {
            std::thread::park();
        }
    }
    let node = Node::builder(2).peer(1, ADDRESS).start()?;
    let adder = node.wait_for_peer(1, Duration::from_secs(5))?;
    println!("{}", adder.call(&Add { values: vec![1, 2, 3] })?.total);
    Ok(())
}
