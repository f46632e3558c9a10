//! A crate that re-exports the library under a name of its own.

mod framework {
    pub mod rpc {
        pub use pronto_rpc::__private;
    }
}

#[derive(pronto_rpc::Payload)]
#[payload(crate = framework::rpc)]
struct Part(u8);

#[derive(pronto_rpc::Message)]
#[message(name = "whole", crate = framework::rpc)]
struct Whole(Part);

fn main() {
    let _ = Whole(Part(1)).0.0;
}
