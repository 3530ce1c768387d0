//! The table of routes as an OpenAPI 3.1 document.

use serde_json::{Map, Value, json};

use super::access::Access;
use super::answer::Problem;
use super::route::{Param, Place, Reply, Route};
use super::schema::schema_for;

pub(super) fn schema() -> Value {
    json!({
        "type": "object", "required": ["openapi", "paths"],
        "properties": { "openapi": { "type": "string" }, "paths": { "type": "object" } },
    })
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
            "schemas": { "Problem": schema_for::<Problem>() },
            "securitySchemes": {
                "admin": { "type": "http", "scheme": "bearer", "description": "listen.admin_token; without one, none is asked." },
                "reader": { "type": "http", "scheme": "bearer", "description": "listen.admin_read_token: GET only." },
                "link": { "type": "http", "scheme": "bearer", "description": "The link's token: POST /v1/feedback and POST /v1/claims only." },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut replies = Map::new();
    let mut add = |reply: &Reply| {
        let about = || json!({ "description": reply.about });
        let entry = replies.entry(reply.status.as_str()).or_insert_with(about);
        // The first description of a status wins; other media types are added to it.
        if entry["content"].get(reply.media).is_none() {
            entry["content"][reply.media] = json!({ "schema": (reply.schema)() });
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
    if let Some(body) = route.body {
        let content = json!({ "application/json": { "schema": (body.schema)() } });
        operation["requestBody"] = json!({ "required": body.is_required, "content": content });
    }
    operation["security"] = match route.access {
        Access::Open => json!([]),
        // `{}`: without configured tokens, none is required.
        Access::Read => json!([{}, { "reader": [] }, { "admin": [] }]),
        Access::Write => json!([{}, { "admin": [] }]),
        Access::Link => json!([{}, { "link": [] }]),
    };
    operation
}

/// The answers of the dispatch itself.
fn of_the_dispatch(route: &Route) -> Vec<Reply> {
    use http::StatusCode as S;
    let mut all = vec![Reply::problem(S::BAD_REQUEST, "The query or the body cannot be understood.")];
    if route.access != Access::Open {
        all.push(Reply::problem(S::UNAUTHORIZED, "No token, or an unknown one."));
        all.push(Reply::problem(S::FORBIDDEN, "Another site's page, or a token that may not do this."));
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
