//! iceoryx2, shared memory, both sides polling: `default` is its request-response, `best` is two publish-subscribe services as in its
//! benchmark, which saves the bookkeeping of requests.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail};
use futures::executor::block_on;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use crate::{PAYLOAD, WINDOW, rounds, server};

type Bytes = [u8; 32];

/// Serves until the caller has ended.
///
/// # Errors
/// If a service cannot be created, or fails.
pub fn serve(setting: &str) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let name = format!("pronto-peers/{}", std::process::id());
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    match setting {
        "default" => {
            let service = requests(&node, &name)?;
            let port = service.server_builder().create().context("a server")?;
            server::say(&name)?;
            while !server::ENDS.load(Ordering::Relaxed) {
                if let Some(request) = port.receive()? {
                    let payload = *request;
                    request.loan_uninit()?.write_payload(payload).send()?;
                }
            }
        }
        "best" => {
            let asks = subscriber(&node, &format!("{name}/ask"))?;
            let answers = publisher(&node, &format!("{name}/answer"))?;
            server::say(&name)?;
            while !server::ENDS.load(Ordering::Relaxed) {
                if let Some(ask) = asks.receive()? {
                    answers.loan_uninit()?.write_payload(*ask).send()?;
                }
            }
        }
        _ => bail!("no such setting: {setting}"),
    }
    Ok(())
}

/// Makes the calls of a round.
///
/// # Errors
/// If a call fails.
pub fn call(setting: &str, name: &str, budget: Duration) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    if setting == "default" {
        call_by_request(&node, name, budget)
    } else {
        call_by_topic(&node, name, budget)
    }
}

fn call_by_request(node: &Node<ipc::Service>, name: &str, budget: Duration) -> anyhow::Result<()> {
    let client = requests(node, name)?.client_builder().create().context("a client")?;
    let ask = || anyhow::Ok(client.loan_uninit()?.write_payload(PAYLOAD).send()?);
    block_on(rounds::singly(budget / 2, async || {
        let pending = ask()?;
        let answer = loop {
            if let Some(answer) = pending.receive()? {
                break answer;
            }
        };
        check(&answer)
    }))?;
    block_on(rounds::load(budget / 2, async |calls| {
        let mut open = VecDeque::with_capacity(WINDOW);
        let (mut asked, mut answered) = (0, 0);
        while answered < calls {
            while asked < calls && open.len() < WINDOW {
                open.push_back(ask()?);
                asked += 1;
            }
            // A single server replies in the order of the requests.
            let Some(oldest) = open.front() else { continue };
            if let Some(answer) = oldest.receive()? {
                check(&answer)?;
                drop(answer);
                open.pop_front();
                answered += 1;
            }
        }
        Ok(calls)
    }))
}

fn call_by_topic(node: &Node<ipc::Service>, name: &str, budget: Duration) -> anyhow::Result<()> {
    let asks = publisher(node, &format!("{name}/ask"))?;
    let answers = subscriber(node, &format!("{name}/answer"))?;
    let ask = || anyhow::Ok(asks.loan_uninit()?.write_payload(PAYLOAD).send().map(drop)?);
    block_on(rounds::singly(budget / 2, async || {
        ask()?;
        loop {
            if let Some(answer) = answers.receive()? {
                return check(&answer);
            }
        }
    }))?;
    block_on(rounds::load(budget / 2, async |calls| {
        let (mut asked, mut answered) = (0, 0);
        while answered < calls {
            while asked < calls && asked - answered < WINDOW as u64 {
                ask()?;
                asked += 1;
            }
            while let Some(answer) = answers.receive()? {
                check(&answer)?;
                answered += 1;
            }
        }
        Ok(calls)
    }))
}

fn check(answer: &Bytes) -> anyhow::Result<()> {
    anyhow::ensure!(*answer == PAYLOAD, "an echo differs from what was sent");
    Ok(())
}

fn requests(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<
    iceoryx2::service::port_factory::request_response::PortFactory<ipc::Service, Bytes, (), Bytes, ()>,
> {
    node.service_builder(&name.try_into()?)
        .request_response::<Bytes, Bytes>()
        .max_active_requests_per_client(WINDOW)
        .max_loaned_requests(WINDOW)
        .open_or_create()
        .context("a request-response service")
}

fn publisher(node: &Node<ipc::Service>, name: &str) -> anyhow::Result<Publisher<ipc::Service, Bytes, ()>> {
    topic(node, name)?.publisher_builder().create().context("a publisher")
}

fn subscriber(node: &Node<ipc::Service>, name: &str) -> anyhow::Result<Subscriber<ipc::Service, Bytes, ()>> {
    topic(node, name)?.subscriber_builder().create().context("a subscriber")
}

fn topic(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, Bytes, ()>>
{
    node.service_builder(&name.try_into()?)
        .publish_subscribe::<Bytes>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(WINDOW)
        .enable_safe_overflow(false)
        .open_or_create()
        .context("a publish-subscribe service")
}
