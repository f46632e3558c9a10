//! A service with a concurrency limit on one node, called by a client with a retry layer on another one.

use core::time::Duration;

use pronto::{Message, Node};
use pronto_tower::{Client, RetryUnexecuted, serve};
use tower::{ServiceBuilder, ServiceExt, service_fn};

#[derive(Message, Debug)]
#[message(name = "example.sum")]
struct Sum {
    total: u64,
}

#[derive(Message, Clone, Debug)]
#[message(name = "example.add", reply = Sum)]
struct Add {
    values: Vec<u64>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn core::error::Error>> {
    let adds = ServiceBuilder::new().concurrency_limit(16).service(service_fn(async |add: Add| {
        add.values
            .iter()
            .try_fold(0_u64, |sum, value| sum.checked_add(*value))
            .map(|total| Sum { total })
            .ok_or("too large")
    }));
    let address = format!("shm:@pronto-example-{}", std::process::id());
    let _server = serve(Node::builder(1).listen(&address), adds).start()?;

    let node = Node::builder(2).peer(1, &address).start()?;
    let peer = node.wait_for_peer_async(1, Duration::from_secs(5)).await?;
    let client = ServiceBuilder::new()
        .retry(RetryUnexecuted::new(3))
        .service(Client::new(peer).within(Duration::from_secs(5)));
    let sum = client.oneshot(Add { values: vec![1, 2, 3] }).await?;
    println!("the sum is {}", sum.total);
    assert_eq!(sum.total, 6);
    Ok(())
}
