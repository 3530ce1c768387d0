//! The pages of the sixteen requests.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::super::pages::{Format, Table, category_name, html, item_page, problem, user_body, user_page};
use super::super::store::{Money, Refusal};
use super::store::{Answer, Me, Refused};
use crate::escape::escape;

pub(in super::super) fn page(answer: &Answer, format: Format) -> Response<Bytes> {
    let ok = |title: &str, body: &str| html(StatusCode::OK, title, body);
    match answer {
        Answer::Names { heading, link, names } => {
            let line = |(number, name): &(u32, String)| {
                format!("<li><a href=\"/rubis/{link}={number}\">{}</a></li>", escape(name))
            };
            ok(heading, &format!("<ul>{}</ul>", names.iter().map(line).collect::<String>()))
        }
        Answer::List { heading, list } => {
            ok(heading, &format!("<p>{} auctions, the liveliest first</p>{}", list.total, Table(&list.items)))
        }
        Answer::Me(me) => ok(&me.user.name, &about_me(me)),
        Answer::SellForm { category } => {
            let name = escape(category_name(*category));
            ok(
                "Sell an item",
                &format!(
                    "<form method=\"post\" action=\"/rubis/RegisterItem\"><p>In {name}</p>\
                     <input type=\"hidden\" name=\"category\" value=\"{category}\">\
                     <label>You are user number <input name=\"user\" required></label> \
                     <label>Title <input name=\"title\" required maxlength=\"200\"></label> \
                     <label>Starting price <input name=\"price\"></label> <button>Sell</button></form>"
                ),
            )
        }
        Answer::Auth { item, buys, cents } => {
            let (action, verb) = if *buys { ("BuyNow", "buy") } else { ("PutBid", "bid") };
            ok(
                &item.title,
                &format!(
                    "<form method=\"post\" action=\"/rubis/{action}\">\
                     <input type=\"hidden\" name=\"item\" value=\"{}\">\
                     <label>You are user number <input name=\"user\" required></label> \
                     <label>and {verb} for <input name=\"amount\" value=\"{}\"></label> <button>Go</button></form>",
                    item.id,
                    Money(*cents)
                ),
            )
        }
        Answer::History { item, bids } => {
            let line = |(bidder, name, cents): &(i64, String, i64)| {
                let (name, money) = (escape(name), Money(*cents));
                format!("<li>{money} by <a href=\"/rubis/ViewUserInfo?user={bidder}\">{name}</a></li>")
            };
            ok(&item.title, &format!("<ol>{}</ol>", bids.iter().map(line).collect::<String>()))
        }
        Answer::Done { what, number } => ok("Done", &format!("<p>{what} {number}.</p>")),
        Answer::Item(item) => item_page(item),
        Answer::User(user) => user_page(user),
        Answer::Nothing => problem(StatusCode::NOT_FOUND, "there is nothing by that number", format),
        Answer::Refused(refused) => problem(status(refused), &refused.to_string(), format),
    }
}

fn status(refused: &Refused) -> StatusCode {
    match refused {
        Refused::Full => StatusCode::INSUFFICIENT_STORAGE,
        Refused::Bid(Refusal::NoItem) => StatusCode::NOT_FOUND,
        Refused::Bid(Refusal::NoUser | Refusal::OwnItem) => StatusCode::UNPROCESSABLE_ENTITY,
        Refused::Bid(Refusal::Over | Refusal::TooLow { .. }) => StatusCode::CONFLICT,
    }
}

fn about_me(me: &Me) -> String {
    let list = |pairs: &[(i64, i64)]| {
        let line = |(item, cents): &(i64, i64)| {
            format!("<li><a href=\"/rubis/ViewItem?item={item}\">Item {item}</a>: {}</li>", Money(*cents))
        };
        pairs.iter().map(line).collect::<String>()
    };
    format!(
        "{}<h2>Bids</h2><ul>{}</ul><h2>Bought</h2><ul>{}</ul>",
        user_body(&me.user),
        list(&me.bids),
        list(&me.purchases)
    )
}
