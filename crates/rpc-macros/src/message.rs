//! `#[derive(Message)]`: the payload, and the constants from its attribute.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Member, Result};

use crate::attributes::{MessageAttributes, Order};
use crate::{payload, root};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a message cannot be generic: its name identifies one layout\n\
             help: derive `Payload` here, and `Message` for a struct that contains this type with concrete parameters",
        ));
    }
    let attributes = MessageAttributes::parse(input)?;
    let root = root::root(attributes.root.clone())?;
    let payload = payload::derive(input, &root)?;

    let ident = &input.ident;
    let MessageAttributes { name, reply, class, order, idempotent, .. } = &attributes;
    let key = key(input, order, &root)?;
    let type_key = reply.as_ref().map(|reply| {
        quote! {
            #[inline]
            fn type_key() -> (#root::NameHash, #root::LayoutHash) {
                const {
                    let reply = <#reply as #root::Payload>::LAYOUT;
                    let both = <Self as #root::Payload>::LAYOUT.text("->").then(reply);
                    (#root::NameHash::of(<Self as #root::Message>::NAME), both)
                }
            }
        }
    });
    let request = reply.as_ref().map(|reply| {
        quote_spanned! {reply.span()=>
            #[automatically_derived]
            impl #root::Request for #ident {
                type Reply = #reply;
            }
        }
    });
    Ok(quote! {
        #payload

        #[automatically_derived]
        impl #root::Message for #ident {
            const NAME: &'static str = #name;
            const CLASS: #root::Class = #root::#class;
            const ORDER: #root::Order = #root::#order;
            const IDEMPOTENT: bool = #idempotent;
            #key
            #type_key
        }

        #request
    })
}

/// Returns the method that reads the key, or nothing if the order needs no key.
fn key(input: &DeriveInput, order: &Order, root: &TokenStream) -> Result<Option<TokenStream>> {
    let Order::ByKey(member) = order else { return Ok(None) };
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            member,
            "an enum has no field that all its values share\n\
             help: make the message a struct of the key and the enum",
        ));
    };
    let is_key = |candidate: &Member| candidate == member;
    let Some((_, field)) = data.fields.members().zip(&data.fields).find(|(candidate, _)| is_key(candidate))
    else {
        return Err(Error::new_spanned(
            member,
            "no such field\nhelp: `by_key` takes the name of one of this struct's fields",
        ));
    };
    let ty = &field.ty;
    let lane = quote_spanned! {ty.span()=> <#ty as #root::Key>::lane };
    Ok(Some(quote! {
        #[inline]
        fn key(&self) -> u64 {
            #lane(&self.#member)
        }
    }))
}
