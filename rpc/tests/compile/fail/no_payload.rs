//! The compiler points at the field that is not a payload.

use pronto_rpc::Payload;

struct Plain;

#[derive(Payload)]
struct Holder {
    fine: u8,
    plain: Plain,
    many: Vec<std::sync::Arc<u8>>,
}

fn main() {}
