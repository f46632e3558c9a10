//! `#[derive(Message)]` and `#[derive(Payload)]`, re-exported by `pronto` and `pronto-rpc`.
//!
//! User documentation: `docs/messages.md`.

#![forbid(unsafe_code)]

mod attributes;
mod message;
mod payload;
mod root;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct or enum a payload: plain data that can be part of a message.
///
/// Every field must be a payload. Type parameters are allowed. Lifetimes are not, as a decoded value owns its data.
/// If neither `pronto` nor `pronto-rpc` is a dependency, `#[payload(crate = path)]` names the crate that re-exports
/// `pronto`.
#[proc_macro_derive(Payload, attributes(payload))]
pub fn derive_payload(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let expanded = attributes::PayloadAttributes::parse(&input)
        .and_then(|attributes| root::root(attributes.root))
        .and_then(|root| payload::derive(&input, &root));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct or enum a message: a payload with a name, a class and an order.
///
/// | in `#[message(…)]` | meaning | default |
/// | --- | --- | --- |
/// | `name = "service.verb"` | the type's name, the same on every node | compile error |
/// | `reply = T` | the type is a request with a reply of type `T` | a notification or a reply |
/// | `class = control`, `bulk` | the connection that carries the message | `control` |
/// | `order = unordered`, `ordered`, `by_key(field)` | the order of handler executions | `unordered` |
/// | `idempotent` | the request may be executed twice | at most once |
/// | `crate = path` | the crate that re-exports `pronto` | found in Cargo.toml |
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    message::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
