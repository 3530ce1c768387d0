//! The shop's pages: what was found, as HTML, or as JSON for programs.
//!
//! The only file here that knows status codes. Text of others reaches a page through [`escape`] only.

use std::fmt::{self, Display};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use super::fields::{MAX_PAGE, Misread};
use super::route::Query;
use super::store::{Accepted, Found, Item, List, Listing, Money, PAGE_ITEMS, Refusal, User};
use super::vocabulary::CATEGORIES;
use crate::escape::escape;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
/// Nothing runs and nothing is loaded, should a text ever get through.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'";
const STYLE: &str = "body{font:1rem/1.5 system-ui;max-width:50rem;margin:0 auto;padding:0 1rem}\
nav a{margin-right:.6rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .5rem;\
border-bottom:1px solid #8884}form{margin:1rem 0}.error{color:#b00020}:root{color-scheme:light dark}";

struct Left(i64);

impl Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ..=0 => f.write_str("over"),
            s @ ..3_600 => write!(f, "{} min", s / 60 + 1),
            s @ ..172_800 => write!(f, "{} h", s / 3_600),
            s => write!(f, "{} days", s / 86_400),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Json,
}

impl Format {
    /// JSON if the client accepts it and does not name HTML, as browsers do.
    pub fn of<B>(request: &Request<B>) -> Self {
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        match accept {
            Some(accept) if accept.contains(JSON) && !accept.contains("text/html") => Self::Json,
            _ => Self::Html,
        }
    }
}

pub(super) fn found(ask: &Query, found: &Found, format: Format) -> Response<Bytes> {
    match found {
        Found::Home(items) if format == Format::Json => data(StatusCode::OK, &json!({ "items": items })),
        Found::List(list) if format == Format::Json => data(StatusCode::OK, list),
        Found::Item(item) if format == Format::Json => data(StatusCode::OK, item),
        Found::Home(items) => {
            html(StatusCode::OK, "Auctions", &format!("<h2>Ending soon</h2>{}", Table(items)))
        }
        Found::List(list) => list_page(ask, list),
        Found::Item(item) => item_page(item),
        Found::User(user) => user_page(user),
        Found::Bid(Ok(accepted)) => bid_page(*accepted, format),
        Found::Bid(Err(refusal)) => {
            let status = match refusal {
                Refusal::NoItem => StatusCode::NOT_FOUND,
                Refusal::NoUser | Refusal::OwnItem => StatusCode::UNPROCESSABLE_ENTITY,
                Refusal::Over | Refusal::TooLow { .. } => StatusCode::CONFLICT,
            };
            problem(status, &refusal.to_string(), format)
        }
        Found::Nothing => problem(StatusCode::NOT_FOUND, "there is nothing by that number", format),
    }
}

pub(super) fn misread(misread: &Misread, format: Format) -> Response<Bytes> {
    let status = match misread {
        Misread::NoPage => StatusCode::NOT_FOUND,
        Misread::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
        Misread::LongForm => StatusCode::PAYLOAD_TOO_LARGE,
        Misread::Query { .. } => StatusCode::BAD_REQUEST,
        Misread::Form { .. } => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let mut response = problem(status, &misread.to_string(), format);
    if let Misread::Method(allow) = misread {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    response
}

/// Every worker is busy and the backlog is full. Without Retry-After: the shop promises nothing.
pub(super) fn overloaded(format: Format) -> Response<Bytes> {
    problem(StatusCode::SERVICE_UNAVAILABLE, "the shop is overloaded", format)
}

pub(super) fn failed(format: Format) -> Response<Bytes> {
    problem(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong in the shop", format)
}

pub(super) fn healthy() -> Response<Bytes> {
    reply(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".into())
}

pub(super) fn problem(status: StatusCode, reason: &str, format: Format) -> Response<Bytes> {
    if format == Format::Json {
        return data(status, &json!({ "status": status.as_u16(), "detail": reason }));
    }
    let title = status.canonical_reason().unwrap_or("Error");
    html(status, title, &format!("<p class=\"error\">Sorry: {}.</p>", escape(reason)))
}

fn list_page(ask: &Query, list: &List) -> Response<Bytes> {
    let (heading, here, page) = match ask {
        Query::Search { text, category, page } => {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("q", text);
            if let Some(category) = category {
                query.append_pair("category", &category.to_string());
            }
            (format!("“{text}”"), format!("/search?{}", query.finish()), *page)
        }
        Query::Browse { category, page } => {
            (category_name(*category).to_owned(), format!("/browse?category={category}"), *page)
        }
        _ => (String::from("Items"), String::from("/browse"), 1),
    };
    let pages = list.total.div_ceil(PAGE_ITEMS.into()).max(1);
    let mut body = match list.total {
        0 if page > 1 => String::from("<p>Nothing on this page.</p>"),
        total => format!("<p>{total} auctions, page {page} of {pages}</p>{}", Table(&list.items)),
    };
    let here = escape(&here);
    body.push_str("<p>");
    if page > 1 {
        body.push_str(&format!("<a rel=\"prev\" href=\"{here}&amp;page={}\">Previous</a> ", page - 1));
    }
    if u64::from(page) < pages.min(MAX_PAGE.into()) {
        body.push_str(&format!("<a rel=\"next\" href=\"{here}&amp;page={}\">Next</a>", page + 1));
    }
    body.push_str("</p>");
    html(StatusCode::OK, &heading, &body)
}

pub(super) fn item_page(item: &Item) -> Response<Bytes> {
    let listing = &item.listing;
    let mut body = format!(
        "<p>{description}</p><p>Sold by <a href=\"/user/{seller}\">{name}</a> ({rating}) in \
         <a href=\"/browse?category={category}\">{category_name}</a></p>\
         <p>Highest bid: <strong>{price}</strong>, {bids} bids, time left: {left}</p>",
        description = escape(&item.description),
        seller = item.seller,
        name = escape(&item.seller_name),
        rating = item.seller_rating,
        category = listing.category,
        category_name = escape(category_name(listing.category)),
        price = Money(listing.price_cents),
        bids = listing.bids,
        left = Left(listing.ends_in_s),
    );
    if listing.ends_in_s > 0 {
        body.push_str(&format!(
            "<form method=\"post\" action=\"/bid\"><input type=\"hidden\" name=\"item\" value=\"{}\">\
             <label>You are user number <input name=\"user\" required inputmode=\"numeric\" size=\"6\"></label> \
             <label>and bid <input name=\"amount\" required inputmode=\"decimal\" size=\"8\" value=\"{}\"></label> \
             <button>Bid</button></form>",
            listing.id,
            Money(item.least_cents)
        ));
    }
    body.push_str("<ul>");
    for offer in &item.history {
        let name = escape(&offer.bidder_name);
        body.push_str(&format!(
            "<li>{} by <a href=\"/user/{}\">{name}</a></li>",
            Money(offer.cents),
            offer.bidder
        ));
    }
    body.push_str("</ul>");
    html(StatusCode::OK, &listing.title, &body)
}

pub(super) fn user_page(user: &User) -> Response<Bytes> {
    html(StatusCode::OK, &user.name, &user_body(user))
}

pub(super) fn user_body(user: &User) -> String {
    let mut body = format!(
        "<p>User number {}, from {}, rated {}</p><h2>Selling</h2>{}<h2>What others say</h2><ul>",
        user.id,
        escape(&user.region),
        user.rating,
        Table(&user.selling)
    );
    for comment in &user.comments {
        let (author, name) = (comment.author, escape(&comment.author_name));
        body.push_str(&format!(
            "<li>{} ({}) <a href=\"/user/{author}\">{name}</a></li>",
            escape(&comment.text),
            comment.rating
        ));
    }
    body.push_str("</ul>");
    body
}

/// A browser is sent to the item, so that a reload does not bid again; a program gets the result.
fn bid_page(accepted: Accepted, format: Format) -> Response<Bytes> {
    let mut response = if format == Format::Json {
        data(StatusCode::CREATED, &accepted)
    } else {
        html(StatusCode::SEE_OTHER, "Your bid leads", "")
    };
    let item = HeaderValue::try_from(format!("/item/{}", accepted.item));
    response.headers_mut().extend(item.ok().map(|item| (header::LOCATION, item)));
    response
}

pub(super) struct Table<'a>(pub &'a [Listing]);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<table><tr><th>Item</th><th>Price</th><th>Bids</th><th>Time left</th></tr>")?;
        for item in self.0 {
            let (title, price) = (escape(&item.title), Money(item.price_cents));
            write!(
                f,
                "<tr><td><a href=\"/item/{}\">{title}</a></td><td>{price}</td><td>{}</td><td>{}</td></tr>",
                item.id,
                item.bids,
                Left(item.ends_in_s)
            )?;
        }
        f.write_str("</table>")
    }
}

pub(super) fn category_name(category: u32) -> &'static str {
    (category as usize).checked_sub(1).and_then(|at| CATEGORIES.get(at)).copied().unwrap_or("Other")
}

/// A page with the shop's head and navigation. `body` is HTML.
pub(super) fn html(status: StatusCode, title: &str, body: &str) -> Response<Bytes> {
    let title = escape(title);
    let mut page = String::with_capacity(4096);
    page.push_str(&format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style>\
         <header><p><a href=\"/\">Auctions</a></p><form action=\"/search\"><label>Search \
         <input name=\"q\" type=\"search\" required maxlength=\"100\"></label> <button>Search</button></form><nav>"
    ));
    for (number, name) in (1..).zip(CATEGORIES) {
        let name = escape(name);
        page.push_str(&format!("<a href=\"/browse?category={number}\">{name}</a>"));
    }
    page.push_str(&format!("</nav></header><main><h1>{title}</h1>{body}</main></html>\n"));
    reply(status, HTML, page.into())
}

fn data(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    // These types have string keys and no number that JSON lacks, so that they always serialise.
    let text = serde_json::to_vec(value).unwrap_or_else(|_| Value::Null.to_string().into());
    reply(status, JSON, text.into())
}

fn reply(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(header::VARY, HeaderValue::from_static("accept"));
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times() {
        for (cents, expected) in [(0, "0.00"), (5, "0.05"), (1250, "12.50"), (1_000_000_000, "10000000.00")] {
            assert_eq!(Money(cents).to_string(), expected);
        }
        for (s, expected) in
            [(-1, "over"), (0, "over"), (59, "1 min"), (3_600, "1 h"), (90_000, "25 h"), (172_800, "2 days")]
        {
            assert_eq!(Left(s).to_string(), expected);
        }
    }

    #[test]
    fn programs_get_json_and_browsers_html() {
        for (accept, expected) in [
            (Some("application/json"), Format::Json),
            (Some("application/json, text/plain;q=0.5"), Format::Json),
            (Some("text/html,application/xhtml+xml,application/json;q=0.9"), Format::Html),
            (Some("*/*"), Format::Html),
            (None, Format::Html),
        ] {
            let mut request = Request::new(());
            request
                .headers_mut()
                .extend(accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept))));
            assert_eq!(Format::of(&request), expected, "{accept:?}");
        }
    }
}
