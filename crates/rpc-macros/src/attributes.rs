//! Parsing and checks of `#[message(…)]` and `#[payload(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, Ident, LitStr, Member, Path, Result, Type};

/// Maximum length of a message type's name, bytes. Names appear in tables and as metric labels.
const MAX_NAME: usize = 64;

/// The contents of `#[payload(…)]`.
#[derive(Default)]
pub(crate) struct PayloadAttributes {
    pub(crate) root: Option<Path>,
}

/// The contents of `#[message(…)]`.
pub(crate) struct MessageAttributes {
    pub(crate) name: LitStr,
    pub(crate) reply: Option<Type>,
    pub(crate) class: Class,
    pub(crate) order: Order,
    pub(crate) idempotent: bool,
    pub(crate) root: Option<Path>,
}

/// `class = …`
#[derive(Clone, Copy)]
pub(crate) enum Class {
    Control,
    Bulk,
}

/// `order = …`
pub(crate) enum Order {
    Unordered,
    Ordered,
    ByKey(Member),
}

/// The attributes read so far. Each may be given once.
#[derive(Default)]
struct Parsed {
    name: Option<LitStr>,
    reply: Option<Type>,
    class: Option<Class>,
    order: Option<Order>,
    idempotent: Option<Span>,
    root: Option<Path>,
}

impl PayloadAttributes {
    pub(crate) fn parse(input: &DeriveInput) -> Result<Self> {
        let mut attributes = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("payload")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    return once(&mut attributes.root, &meta, |meta| meta.value()?.parse());
                }
                Err(meta.error(unknown(&meta.path, "payload", "the only attribute is `crate = path`")))
            })?;
        }
        Ok(attributes)
    }
}

impl MessageAttributes {
    pub(crate) fn parse(input: &DeriveInput) -> Result<Self> {
        let mut parsed = Parsed::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("message")) {
            attribute.parse_nested_meta(|meta| parsed.attribute(&meta))?;
        }
        let Some(name) = parsed.name else {
            return Err(Error::new_spanned(
                &input.ident,
                "a message needs a name, the same on every node\n\
                 help: write `#[message(name = \"service.verb\")]` below the derive",
            ));
        };
        check_name(&name)?;
        if let (Some(idempotent), None) = (parsed.idempotent, &parsed.reply) {
            return Err(Error::new(
                idempotent,
                "only a request can be idempotent: nothing else is sent again\n\
                 help: name its reply, `reply = T`, or leave `idempotent` out",
            ));
        }
        Ok(Self {
            name,
            reply: parsed.reply,
            class: parsed.class.unwrap_or(Class::Control),
            order: parsed.order.unwrap_or(Order::Unordered),
            idempotent: parsed.idempotent.is_some(),
            root: parsed.root,
        })
    }
}

impl Parsed {
    fn attribute(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let Some(key) = meta.path.require_ident().ok().map(ToString::to_string) else {
            return Err(meta.error(unknown(&meta.path, "message", KNOWN)));
        };
        match key.as_str() {
            "name" => once(&mut self.name, meta, |meta| meta.value()?.parse()),
            "reply" => once(&mut self.reply, meta, |meta| meta.value()?.parse()),
            "class" => once(&mut self.class, meta, parse_class),
            "order" => once(&mut self.order, meta, parse_order),
            "idempotent" => once(&mut self.idempotent, meta, |meta| Ok(meta.path.span())),
            "crate" => once(&mut self.root, meta, |meta| meta.value()?.parse()),
            _ => Err(meta.error(unknown(&meta.path, "message", KNOWN))),
        }
    }
}

const KNOWN: &str = "the attributes are `name`, `reply`, `class`, `order`, `idempotent` and `crate`";

fn unknown(path: &Path, attribute: &str, known: &str) -> String {
    let name = path.to_token_stream();
    format!("unknown attribute `{name}` in `#[{attribute}(…)]`\nhelp: {known}")
}

fn once<T>(
    slot: &mut Option<T>,
    meta: &ParseNestedMeta<'_>,
    parse: impl FnOnce(&ParseNestedMeta<'_>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        let name = meta.path.to_token_stream();
        return Err(meta.error(format!("`{name}` is given twice\nhelp: keep one of them")));
    }
    *slot = Some(parse(meta)?);
    Ok(())
}

fn parse_class(meta: &ParseNestedMeta<'_>) -> Result<Class> {
    let class: Ident = meta.value()?.parse()?;
    match class.to_string().as_str() {
        "control" => Ok(Class::Control),
        "bulk" => Ok(Class::Bulk),
        other => Err(Error::new(
            class.span(),
            format!(
                "unknown class `{other}`\nhelp: `control` for small and urgent messages, `bulk` for large ones"
            ),
        )),
    }
}

fn parse_order(meta: &ParseNestedMeta<'_>) -> Result<Order> {
    let order: Ident = meta.value()?.parse()?;
    match order.to_string().as_str() {
        "unordered" => Ok(Order::Unordered),
        "ordered" => Ok(Order::Ordered),
        "by_key" => {
            if !meta.input.peek(syn::token::Paren) {
                return Err(Error::new(
                    order.span(),
                    "`by_key` needs the field that is the key\nhelp: write `by_key(field)`",
                ));
            }
            let content;
            syn::parenthesized!(content in meta.input);
            let field = content.parse()?;
            if content.is_empty() {
                Ok(Order::ByKey(field))
            } else {
                Err(content.error("`by_key` takes exactly one field"))
            }
        }
        "inline" => Err(Error::new(
            order.span(),
            "`inline` is not an order of a message type\nhelp: each node chooses it when it registers the handler",
        )),
        other => Err(Error::new(
            order.span(),
            format!(
                "unknown order `{other}`\nhelp: `unordered`, `ordered` (all of this type) or `by_key(field)`"
            ),
        )),
    }
}

fn check_name(name: &LitStr) -> Result<()> {
    let text = name.value();
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(legal) {
        return Ok(());
    }
    Err(Error::new_spanned(
        name,
        format!(
            "invalid message name\nhelp: 1 to {MAX_NAME} letters, digits, dots, underscores or dashes, like \"service.verb\""
        ),
    ))
}

impl ToTokens for Class {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let variant = match self {
            Self::Control => format_ident!("Control"),
            Self::Bulk => format_ident!("Bulk"),
        };
        tokens.extend(quote!(Class::#variant));
    }
}

impl ToTokens for Order {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let variant = match self {
            Self::Unordered => format_ident!("Unordered"),
            Self::Ordered => format_ident!("Ordered"),
            Self::ByKey(_) => format_ident!("ByKey"),
        };
        tokens.extend(quote!(Order::#variant));
    }
}
