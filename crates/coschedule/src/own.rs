//! A program that coschedules itself: it counts messages that its sockets do not show, and knows the pressure of its peers.
//!
//! A node of Pronto finds both without a system call: its own messages, and those of peers in the headers of their messages. A thread of
//! the program passes them on once per period:
//!
//! ```no_run
//! use pronto::{Node, Pressure};
//! use pronto_coschedule::Service;
//! use pronto_coschedule::group::Members;
//! use pronto_coschedule::own::OwnMessages;
//! use pronto_coschedule::service::default_state;
//! use pronto_coschedule::settings::{Group, Past, Policy, Settings};
//!
//! let node = Node::builder(1).listen("shm:@coscheduled").carry_pressure().start()?;
//! let group = Group { name: "this program".to_owned(), members: Members::Own };
//! let (mut service, _restored) = Service::begin(Settings {
//!     policy: Policy::Carried,
//!     period: Settings::PERIOD,
//!     past: Past::Fixed(Settings::PAST),
//!     most: Settings::MOST,
//!     sensor: Default::default(),
//!     actuator: Default::default(),
//!     groups: vec![group],
//!     state: default_state(),
//! })?;
//! loop {
//!     let local = u32::try_from(node.messages()).unwrap_or(u32::MAX);
//!     let of_peers = node.take_pressure().messages();
//!     service.coscheduler().receive_own(OwnMessages { local, of_peers });
//!     for problem in service.work() {
//!         eprintln!("{problem}");
//!     }
//!     node.set_pressure(Pressure::of(service.coscheduler().own_messages()));
//!     std::thread::sleep(service.pause());
//! }
//! # #[expect(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The messages of this process, as its own node counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnMessages {
    /// Number of messages that the program has to do with.
    pub local: u32,
    /// Number of messages for which the largest pressure of its peers stands.
    pub of_peers: u32,
}
