//! How much of its steps a call waits for: its steps between queue pairs that note when they were looked at and left.
//!
//! A reading of the clock in the midst of a step makes it longer, so what is kept of these rounds are shares; what is shared out by
//! them are the steps without a clock in them.

use core::hint::black_box;
use std::time::Instant;

use crate::pair::{Callee, Ends, POLL_BATCH, Pairs};
use anyhow::Context as _;
use pronto_core::fabric::{Arrived, ConnectionLimits, QueuePair};
use pronto_core::session::{Event, Inbound, Sink};

use super::stages::{Ask, Held, Stages};
use super::watched::{Notes, Watched};
use super::{Part, Parts, Way};
use crate::clock;

/// The two sides of a link.
type Sides<Q> = (Pairs<Q>, Pairs<Q>);

/// The same links with watched queue pairs.
pub(crate) fn watched<Q: QueuePair>(
    link: impl Fn([ConnectionLimits; 2]) -> anyhow::Result<Sides<Q>>,
) -> impl Fn([ConnectionLimits; 2]) -> anyhow::Result<Sides<Watched<Q>>> {
    move |limits| link(limits).map(|(near, far)| (near.map(Watched::new), far.map(Watched::new)))
}

impl<Q: QueuePair + 'static, M: Ask> Stages<Watched<Q>, M> {
    /// One call on each link that its callee answers at once, then one that it answers later; of each step the pieces.
    ///
    /// # Errors
    /// If a call fails.
    pub(crate) fn apart(&self, parts: &mut Parts) -> anyhow::Result<()> {
        for link in &self.links {
            match self.way {
                Way::FastOutcome => self.soon_apart(link, parts)?,
                Way::Started => self.started_apart(link, parts)?,
            }
        }
        self.settle();
        for link in &self.links {
            self.take_in_apart(link, parts)?;
        }
        self.settle();
        Ok(())
    }

    fn soon_apart(&self, link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
        let payload = self.encoded(&link.caller)?;
        let (notes, call) = Notes::of(|| self.post(link, payload));
        let call = call?;
        request(&notes, parts)?;
        serve_apart(link, parts)?;
        let (notes, found) = Notes::of(|| self.find_soon(link, call, |bytes| _ = black_box(bytes)));
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

    fn take_in_apart(&self, link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
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
        let request = handed.request.context("a request is taken in")?;
        let pieces = notes.pieces([notes.looked, handed.when]).context("a request is looked for")?;
        parts.pieces([Part::InBegins, Part::InHanded, Part::InEnds], pieces);
        let response = request.handled(&link.callee).context("a response")?;
        request.respond(response);
        match self.way {
            Way::FastOutcome => self.find_soon(link, call, |_| ()),
            Way::Started => self.wait(link, call),
        }
    }
}

/// Keeps a request, and when it came.
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
    let pieces = notes.pieces([notes.left]).context("a request leaves")?;
    parts.pieces([Part::RequestLeaves, Part::RequestEnds], pieces);
    Ok(())
}

fn wait(notes: &Notes, parts: &mut Parts) -> anyhow::Result<()> {
    let pieces = notes.pieces([notes.looked]).context("an answer is looked for")?;
    parts.pieces([Part::WaitBegins, Part::WaitFinds], pieces);
    Ok(())
}

fn serve_apart<Q: QueuePair + 'static>(link: &Ends<Watched<Q>>, parts: &mut Parts) -> anyhow::Result<()> {
    let (notes, served) = Notes::of(|| link.callee.serve(POLL_BATCH));
    anyhow::ensure!(served == 1, "each request is served once");
    let pieces = notes.pieces([notes.looked, notes.left]).context("an answer leaves")?;
    parts.pieces([Part::ServeBegins, Part::ServeAnswers, Part::ServeEnds], pieces);
    Ok(())
}
