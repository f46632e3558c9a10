//! One node in its own process. Its supervisor configures it; it joins the others, computes, and reports.

use core::time::Duration;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use pronto::{Node, NodeError, NodeId, Rdma, WaitPolicy};
use thiserror::Error;

use crate::control::{BetweenHosts, Command, Found, NodeReport, Notice, Setup, read_line, write_line};
use crate::data::{DataError, Points};
use crate::kmeans;
use crate::network::Network;
use crate::os::{Event, ORIGIN, Os, OsError, register};
use crate::page::{PAGE_SIZE, Page};
use crate::ranges::Ranges;

/// Reason why a node process ends early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeProcessError {
    /// Communication with the supervisor failed.
    #[error("cannot communicate with the supervisor: {0}")]
    Control(#[from] io::Error),
    /// The supervisor did not send exactly one setup, as its first command.
    #[error("expected exactly one setup, as the supervisor's first command")]
    NoSetup,
    /// The data could not be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data differs from the supervisor's.
    #[error("the data changed while the nodes started")]
    DataChanged,
    /// The communication layer did not start, or a peer did not become reachable.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The mini distributed OS failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Runs a node that is controlled through `input` and `output`, until the supervisor ends it.
///
/// # Errors
/// [`NodeProcessError`]. If possible, it was reported to the supervisor first.
pub fn node_main(
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> Result<(), NodeProcessError> {
    let Some(Command::Setup(setup)) = read_line(&mut input)? else { return Err(NodeProcessError::NoSetup) };
    let (events, inbox) = channel();
    read_commands(input, events.clone())?;
    let result = run(&setup, events, &inbox, &mut output);
    if let Err(error) = &result {
        write_line(&mut output, &Notice::Failed(error.to_string()))?;
    }
    result
}

/// Forwards the supervisor's commands, and exits the process when the supervisor is gone: no result is needed then.
fn read_commands(
    mut input: impl BufRead + Send + 'static,
    events: Sender<Event>,
) -> Result<(), NodeProcessError> {
    let listen = move || {
        while let Ok(Some(command)) = read_line(&mut input) {
            if events.send(Event::Command(command)).is_err() {
                return;
            }
        }
        std::process::exit(0);
    };
    std::thread::Builder::new().name("minidos-control".into()).spawn(listen)?;
    Ok(())
}

fn run(
    setup: &Setup,
    events: Sender<Event>,
    inbox: &Receiver<Event>,
    output: &mut impl Write,
) -> Result<(), NodeProcessError> {
    let points = setup.source.load()?;
    if (points.rows(), points.dims) != (setup.task.rows, setup.task.dims) {
        return Err(NodeProcessError::DataChanged);
    }
    let me = NodeId(setup.node);
    let network = Network::new(me, setup.nodes)?;
    let os = Os::new(network, setup.frames, kmeans::work, events);
    load(&os, &points);
    let mut builder = Node::builder(me).name(&format!("n{}", setup.node)).wait(WaitPolicy::Adaptive);
    if let Some(between) = setup.between_hosts {
        builder = builder.plaintext_i_understand().rdma(match between {
            BetweenHosts::Best => Rdma::Auto,
            BetweenHosts::Tcp => Rdma::Off,
            BetweenHosts::Rdma => Rdma::Require,
        });
    }
    for address in &setup.listen {
        builder = builder.listen(address);
    }
    for (peer, addresses) in &setup.peers {
        for address in addresses {
            builder = builder.peer(*peer, address);
        }
    }
    let node = register(builder, &os).start()?;
    write_line(output, &Notice::Listening(node.listening().iter().map(ToString::to_string).collect()))?;
    let peers = os.network.peers().map(|peer| node.wait_for_peer(peer, START)).collect::<Result<_, _>>()?;
    os.network.connect(peers);
    os.announce()?;
    serve(setup, &os, &node, inbox, output)
}

/// Loads the pages of the data whose home is this node.
fn load(os: &Os, points: &Points) {
    let bytes: Vec<u8> = points.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut page = Ranges::first().page();
    for chunk in bytes.chunks(PAGE_SIZE) {
        if page.home(os.network.nodes()) == os.network.me() {
            let mut contents = Page::zeroed();
            contents.0[..chunk.len()].copy_from_slice(chunk);
            os.load(page, contents);
        }
        page.0 += 1;
    }
}

fn serve(
    setup: &Setup,
    os: &Arc<Os>,
    node: &Node,
    inbox: &Receiver<Event>,
    output: &mut impl Write,
) -> Result<(), NodeProcessError> {
    let mut unmet = setup.nodes - 1;
    let mut found = None;
    if unmet == 0 {
        joined(setup, os, output)?;
    }
    while let Ok(event) = inbox.recv() {
        match event {
            Event::PeerAnnounced => {
                unmet -= 1;
                if unmet == 0 {
                    joined(setup, os, output)?;
                }
            }
            Event::Iterated(iterations) => write_line(output, &Notice::Iterated(iterations))?,
            Event::Computed(result) => found = Some(result),
            Event::ProcessEnded => write_line(output, &Notice::Finished(found.take()))?,
            Event::Failed(error) => return Err(error.into()),
            Event::Command(Command::Count) => {
                write_line(output, &Notice::Counts(os.network.ledger().counts()))?
            }
            Event::Command(Command::Report) => {
                write_line(output, &Notice::Report(Box::new(report(os, node))))?
            }
            Event::Command(Command::Setup(_)) => return Err(NodeProcessError::NoSetup),
        }
    }
    Ok(())
}

/// Reports that all nodes have joined. The origin starts the computation.
fn joined(setup: &Setup, os: &Arc<Os>, output: &mut impl Write) -> Result<(), NodeProcessError> {
    write_line(output, &Notice::Joined)?;
    if os.network.me() != ORIGIN {
        return Ok(());
    }
    let (os, task, tasks) = (Arc::clone(os), setup.task, u32::from(setup.nodes));
    let title = setup.source.title();
    let compute = move || {
        let result = kmeans::create_layout(&os, task, tasks, &title).and_then(|(layout, process)| {
            process.run(&os)?;
            let outcome = layout.outcome(&os)?;
            let centres = outcome.centres.iter().map(|value| value.to_bits()).collect();
            os.emit(Event::Computed(Found { centres, iterations: outcome.iterations }));
            process.end_process(&os)
        });
        if let Err(error) = result {
            os.fail(error);
        }
    };
    std::thread::Builder::new().name("minidos-process".into()).spawn(compute)?;
    Ok(())
}

fn report(os: &Os, node: &Node) -> NodeReport {
    let mut counters: Vec<(String, u64)> = Vec::new();
    let mut providers = Vec::new();
    for peer in node.status().peers {
        for (name, count) in peer.counters {
            match counters.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => counters.push((name.to_owned(), count)),
            }
        }
        providers.extend(peer.info.map(|info| info.provider.to_owned()));
    }
    NodeReport {
        traffic: os.network.ledger().traffic(),
        causes: os.causes.counts(),
        faults: os.network.faults(),
        waits_for_room: os.network.waits_for_room(),
        counters,
        providers,
    }
}

/// Time within which the other nodes must become reachable.
const START: Duration = Duration::from_secs(15);
