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

use crate::{BYTE, WINDOW, check, rounds, server};

/// Calls a function whose payloads have `size` bytes.
macro_rules! with_size {
    ($size:expr, $function:ident $arguments:tt) => {
        match $size {
            32 => $function::<32> $arguments,
            224 => $function::<224> $arguments,
            4096 => $function::<4096> $arguments,
            65_536 => $function::<65_536> $arguments,
            size => bail!("no service for {size} bytes"),
        }
    };
}

/// Serves until the caller has ended.
///
/// # Errors
/// If a service cannot be created, or fails.
pub fn serve(setting: &str, size: usize) -> anyhow::Result<()> {
    with_size!(size, serve_size(setting))
}

fn serve_size<const N: usize>(setting: &str) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let name = format!("pronto-peers/{}", std::process::id());
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    match setting {
        "default" => {
            let service = requests::<N>(&node, &name)?;
            let port = service.server_builder().create().context("a server")?;
            server::say(&name)?;
            while !server::ENDS.load(Ordering::Relaxed) {
                if let Some(request) = port.receive()? {
                    request.loan_uninit()?.write_payload(*request).send()?;
                }
            }
        }
        "best" => {
            let asks = subscriber::<N>(&node, &format!("{name}/ask"))?;
            let answers = publisher::<N>(&node, &format!("{name}/answer"))?;
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
pub fn call(setting: &str, name: &str, budget: Duration, size: usize) -> anyhow::Result<()> {
    with_size!(size, call_size(setting, name, budget))
}

fn call_size<const N: usize>(setting: &str, name: &str, budget: Duration) -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>().context("a node")?;
    if setting == "default" {
        call_by_request::<N>(&node, name, budget)
    } else {
        call_by_topic::<N>(&node, name, budget)
    }
}

fn call_by_request<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
    budget: Duration,
) -> anyhow::Result<()> {
    let client = requests::<N>(node, name)?.client_builder().create().context("a client")?;
    let ask = || anyhow::Ok(client.loan_uninit()?.write_payload([BYTE; N]).send()?);
    let once = async || {
        let pending = ask()?;
        let answer = loop {
            if let Some(answer) = pending.receive()? {
                break answer;
            }
        };
        check(&*answer, N)
    };
    block_on(rounds::all(budget, N, once, async |calls| {
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
                check(&*answer, N)?;
                drop(answer);
                open.pop_front();
                answered += 1;
            }
        }
        Ok(calls)
    }))
}

fn call_by_topic<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
    budget: Duration,
) -> anyhow::Result<()> {
    let asks = publisher::<N>(node, &format!("{name}/ask"))?;
    let answers = subscriber::<N>(node, &format!("{name}/answer"))?;
    let ask = || anyhow::Ok(asks.loan_uninit()?.write_payload([BYTE; N]).send().map(drop)?);
    let once = async || {
        ask()?;
        loop {
            if let Some(answer) = answers.receive()? {
                return check(&*answer, N);
            }
        }
    };
    block_on(rounds::all(budget, N, once, async |calls| {
        let (mut asked, mut answered) = (0, 0);
        while answered < calls {
            while asked < calls && asked - answered < WINDOW as u64 {
                ask()?;
                asked += 1;
            }
            while let Some(answer) = answers.receive()? {
                check(&*answer, N)?;
                answered += 1;
            }
        }
        Ok(calls)
    }))
}

fn requests<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<
    iceoryx2::service::port_factory::request_response::PortFactory<ipc::Service, [u8; N], (), [u8; N], ()>,
> {
    node.service_builder(&name.try_into()?)
        .request_response::<[u8; N], [u8; N]>()
        .max_active_requests_per_client(WINDOW)
        .max_loaned_requests(WINDOW)
        .open_or_create()
        .context("a request-response service")
}

fn publisher<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<Publisher<ipc::Service, [u8; N], ()>> {
    topic::<N>(node, name)?.publisher_builder().create().context("a publisher")
}

fn subscriber<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<Subscriber<ipc::Service, [u8; N], ()>> {
    topic::<N>(node, name)?.subscriber_builder().create().context("a subscriber")
}

fn topic<const N: usize>(
    node: &Node<ipc::Service>,
    name: &str,
) -> anyhow::Result<iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u8; N], ()>>
{
    node.service_builder(&name.try_into()?)
        .publish_subscribe::<[u8; N]>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(WINDOW)
        .enable_safe_overflow(false)
        .open_or_create()
        .context("a publish-subscribe service")
}
