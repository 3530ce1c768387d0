//! The table of routes as an OpenAPI 3.1 document.

use serde_json::{Map, Value, json};

use super::access::Access;
use super::route::{Param, Place, Reply, Route};
use super::schema::{a, list, maybe, object};

/// Of the document itself.
pub(super) fn schema() -> Value {
    object(&[("openapi", a("string", "The version of the form.")), ("paths", a("object", "Every route."))])
}

pub(super) fn document(routes: &[Route]) -> Value {
    let mut paths = Map::<String, Value>::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.name().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate's admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Everything that can be known of a gate and changed while it runs. Errors are problems (RFC 9457), \
                            whose `type` tells their kind.",
        },
        "paths": paths,
        "components": {
            "schemas": { "Problem": of_problems() },
            "securitySchemes": {
                "admin": { "type": "http", "scheme": "bearer", "description": "listen.admin_token; without one, none is asked." },
                "reader": { "type": "http", "scheme": "bearer", "description": "listen.admin_read_token: GET only." },
            },
        },
    })
}

fn of_problems() -> Value {
    let mistake = object(&[
        (
            "key",
            a(
                "string",
                "What is wrong: a key of the settings, a field of the body, a parameter; empty: the whole.",
            ),
        ),
        ("expected", a("string", "What would have been right.")),
        ("got", a("string", "What came.")),
        ("hint", maybe("string", "What was probably meant.")),
    ]);
    let mut problem = object(&[
        ("type", a("string", "The kind, for programs: urn:tidegate:problem:KIND.")),
        ("title", a("string", "The kind, for people.")),
        ("status", a("integer", "As in the head.")),
        ("detail", a("string", "What it is in this case.")),
    ]);
    problem["properties"]["mistakes"] = list(mistake, "Every single mistake, where there are several.");
    problem
}

fn operation(route: &Route) -> Value {
    let mut replies = Map::new();
    let mut add = |reply: &Reply| {
        let about = || json!({ "description": reply.about });
        let entry = replies.entry(reply.status.as_str()).or_insert_with(about);
        // The first has the word; another form of the same answer is added to it.
        if let Some((media, schema)) = reply.content
            && entry["content"].get(media).is_none()
        {
            entry["content"][media] = json!({ "schema": schema() });
        }
    };
    route.replies.iter().for_each(&mut add);
    of_the_dispatch(route).iter().for_each(&mut add);
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": route.params.iter().map(parameter).collect::<Vec<_>>(),
        "responses": replies,
    });
    if let Some((needed, schema)) = route.body {
        operation["requestBody"] =
            json!({ "required": needed, "content": { "application/json": { "schema": schema() } } });
    }
    operation["security"] = match route.access {
        Access::Open => json!([]),
        // `{}`: without tokens configured, none is asked for.
        Access::Read => json!([{}, { "reader": [] }, { "admin": [] }]),
        Access::Write => json!([{}, { "admin": [] }]),
    };
    operation
}

/// What the dispatch itself may answer before the handler is asked.
fn of_the_dispatch(route: &Route) -> Vec<Reply> {
    use http::StatusCode as S;
    let mut all = vec![Reply::problem(S::BAD_REQUEST, "The query or the body cannot be understood.")];
    if route.access != Access::Open {
        all.push(Reply::problem(S::UNAUTHORIZED, "No token, or an unknown one."));
        all.push(Reply::problem(S::FORBIDDEN, "Another site's page, or a token that may only read."));
    }
    if route.body.is_some() {
        all.push(Reply::problem(S::REQUEST_TIMEOUT, "The body did not come in time."));
        all.push(Reply::problem(S::PAYLOAD_TOO_LARGE, "The body is too large."));
    }
    all
}

fn parameter(param: &Param) -> Value {
    let place = match param.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": param.name, "in": place, "required": param.place == Place::Path,
        "description": param.about, "schema": (param.schema)(),
    })
}

/// `GET /v1/tunables/{name}` is `get_tunables_name`.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty() && *word != "v1");
    let words: Vec<&str> = words.collect();
    format!("{}_{}", route.verb.name().to_lowercase(), words.join("_"))
}
