//! Shares of the steps that a call waits for, measured between queue pairs that note the times of polls and sends.
//!
//! A clock reading within a step makes it longer, so these rounds give only shares, which divide the times of steps without clock
//! readings.

use core::hint::black_box;
use std::time::Instant;

use crate::pair::{Callee, Ends, POLL_BATCH, Pairs};
use anyhow::Context as _;
use pronto_core::fabric::{Arrived, ConnectionLimits, QueuePair};
use pronto_core::session::{Event, Inbound, Sink};

use super::stages::{Ask, Held, Stages};
use super::watched::{Notes, Watched};
use super::{CallPath, Part, Parts};
use crate::clock;

/// The two sides of a link.
type Sides<Q> = (Pairs<Q>, Pairs<Q>);

/// Returns a function that creates the links of `link` with watched queue pairs.
pub(crate) fn watched<Q: QueuePair>(
    link: impl Fn([ConnectionLimits; 2]) -> anyhow::Result<Sides<Q>>,
) -> impl Fn([ConnectionLimits; 2]) -> anyhow::Result<Sides<Watched<Q>>> {
    move |limits| link(limits).map(|(near, far)| (near.map(Watched::new), far.map(Watched::new)))
}

impl<Q: QueuePair + 'static, M: Ask> Stages<Watched<Q>, M> {
    /// Makes one call on each link that its callee replies to immediately, then one that it replies to later, and records the pieces of
    /// each step.
    pub(crate) fn apart(&self, parts: &mut Parts) -> anyhow::Result<()> {
        for link in &self.links {
            match self.path {
                CallPath::Fast => self.fast_apart(link, parts)?,
                CallPath::Started => self.started_apart(link, parts)?,
            }
        }
        self.settle();
        for link in &self.links {
            self.receive_apart(link, parts)?;
        }
        self.settle();
        Ok(())
    }

    fn fast_apart(&self, link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
        let payload = self.encoded(&link.caller)?;
        let (notes, call) = Notes::of(|| self.post(link, payload));
        let call = call?;
        request(&notes, parts)?;
        serve_apart(link, parts)?;
        let (notes, found) = Notes::of(|| self.find_fast(link, call, |bytes| _ = black_box(bytes)));
        found?;
        wait(&notes, parts)
    }

    fn started_apart(&self, link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
        let peer = link.peer();
        let (notes, call) = Notes::of(|| peer.start(black_box(&self.ask)));
        let call = call?;
        request(&notes, parts)?;
        serve_apart(link, parts)?;
        let (notes, reply) = Notes::of(|| call.wait().map(|reply| drop(black_box(reply))));
        reply?;
        wait(&notes, parts)
    }

    fn receive_apart(&self, link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
        let call = self.post(link, self.encoded(&link.caller)?)?;
        let mut handed = Handed { callee: &link.callee, request: None, when: None };
        let (notes, ()) = Notes::of(|| {
            for _ in 0..POLL_BATCH {
                link.callee.session.turn(1, || false, &mut handed, &self.still);
                if handed.request.is_some() {
                    break;
                }
            }
        });
        let mut request = handed.request.context("a request is taken in")?;
        let pieces = notes.pieces([notes.polled, handed.when]).context("a request is looked for")?;
        parts.pieces([Part::InBegins, Part::InHanded, Part::InEnds], pieces);
        let response = request.handled(&link.callee).context("a response")?;
        request.respond(response);
        match self.path {
            CallPath::Fast => self.find_fast(link, call, |_| ()),
            CallPath::Started => self.wait(link, call),
        }
    }
}

/// Keeps a request, and the time of its arrival.
struct Handed<'a, Q: QueuePair + 'static> {
    callee: &'a Callee<Q>,
    request: Option<Held<Q>>,
    when: Option<Instant>,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for Handed<'_, Q> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Q::Lease>>) {
        self.when = Some(clock::now());
        self.request = Some(Held::of(self.callee, inbound));
    }

    fn event(&mut self, _: Event) {}
}

fn request(notes: &Notes, parts: &mut Parts) -> anyhow::Result<()> {
    let pieces = notes.pieces([notes.sent]).context("a request leaves")?;
    parts.pieces([Part::RequestLeaves, Part::RequestEnds], pieces);
    Ok(())
}

fn wait(notes: &Notes, parts: &mut Parts) -> anyhow::Result<()> {
    let pieces = notes.pieces([notes.polled]).context("an answer is looked for")?;
    parts.pieces([Part::WaitBegins, Part::WaitFinds], pieces);
    Ok(())
}

fn serve_apart<Q: QueuePair + 'static>(link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
    let (notes, served) = Notes::of(|| link.callee.serve(POLL_BATCH));
    anyhow::ensure!(served == 1, "each request is served once");
    let pieces = notes.pieces([notes.polled, notes.sent]).context("an answer leaves")?;
    parts.pieces([Part::ServeBegins, Part::ServeAnswers, Part::ServeEnds], pieces);
    Ok(())
}
