//! Tables of heads: what is rejected, passed on, removed.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use ipnet::IpNet;

use super::*;
use tidegate_http::{
    Asked, Fields, Framing, HeadLimits, Name, RequestHead, RequestParser, ResponseHead, ResponseLimits,
    ResponseParser,
};

type Lines = &'static [(&'static str, &'static str)];

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.append(Name::Other(name), value.as_bytes()));
    fields
}

fn head(method: &str, target: &str, lines: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::new(method.parse().unwrap(), target, Version::HTTP_11);
    head.fields = fields(lines);
    head
}

fn all(fields: &Fields, name: &str) -> Vec<String> {
    fields.get_all(name.into()).map(|v| String::from_utf8(v.to_vec()).unwrap()).collect()
}

const CTX: ForwardContext<'static> = ForwardContext {
    peer: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    trusted: false,
    scheme: "http",
    via: "tidegate",
    forwarded: true,
    host: "",
    request_id: b"id-1",
    keep_upgrade: false,
    is_own_cookie: |name| matches!(name, "tg" | "tg_pass"),
};

#[test]
#[rustfmt::skip]
fn requests_are_checked() {
    use Reject::*;
    type Case = (&'static str, &'static str, Lines, Result<Target, Reject>);
    let cases: &[Case] = &[
        ("GET", "/", &[("host", "a")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "shop.example:8080")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "192.0.2.1:80")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "[2001:db8::1]:80")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "")], Err(Host)),
        ("GET", "/", &[], Err(Host)),
        ("GET", "/", &[("host", "a"), ("host", "a")], Err(Host)),
        ("GET", "/", &[("host", "a/b")], Err(Host)),
        ("GET", "/", &[("host", "a b")], Err(Host)),
        ("GET", "/", &[("host", "a,b")], Err(Host)),
        ("GET", "/", &[("host", "u@a")], Err(Host)),
        ("GET", "/", &[("host", "a:b")], Err(Host)),
        ("GET", "/", &[("host", "a:")], Err(Host)),
        ("GET", "/", &[("host", "a:99999")], Err(Host)),
        ("GET", "/", &[("host", "2001:db8::1")], Err(Host)),
        ("GET", "/", &[("host", "[::1")], Err(Host)),
        ("GET", "/", &[("host", "[::zz]")], Err(Host)),
        ("GET", "/", &[("host", "[::1]x")], Err(Host)),
        ("GET", "/", &[("host", "a%00b")], Err(Host)),
        ("GET", "http://a/x", &[("host", "a")], Ok(Target::Origin)),
        ("GET", "http://A/x", &[("host", "a:80")], Ok(Target::Origin)),
        ("GET", "https://a:443/x", &[("host", "a")], Ok(Target::Origin)),
        ("GET", "http://a/x", &[("host", "b")], Err(HostMismatch)),
        ("GET", "http://a/x", &[("host", "a:81")], Err(HostMismatch)),
        ("OPTIONS", "*", &[("host", "a")], Ok(Target::Origin)),
        ("GET", "*", &[("host", "a")], Err(Form)),
        ("CONNECT", "a:443", &[("host", "a:443")], Err(Connect)),
        ("TRACE", "/", &[("host", "a")], Err(Trace)),
        ("TRACE", "/", &[("host", "a"), ("max-forwards", "0")], Err(Trace)),
        ("OPTIONS", "/", &[("host", "a"), ("max-forwards", "0")], Ok(Target::Gate)),
        ("OPTIONS", "/", &[("host", "a"), ("max-forwards", "3")], Ok(Target::Origin)),
        ("OPTIONS", "/", &[("host", "a"), ("max-forwards", "-1")], Err(MaxForwards)),
        ("OPTIONS", "/", &[("host", "a"), ("max-forwards", "1"), ("max-forwards", "2")], Err(MaxForwards)),
        ("GET", "/", &[("host", "a"), ("max-forwards", "0")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "a"), ("expect", "100-Continue")], Ok(Target::Origin)),
        ("GET", "/", &[("host", "a"), ("expect", "200-ok")], Err(Expect)),
        ("GET", "/", &[("host", "a"), ("expect", "100-continue"), ("expect", "x")], Err(Expect)),
        ("GET", "/a%00b", &[("host", "a")], Err(Path)),
        ("GET", "/a%0d%0ab", &[("host", "a")], Err(Path)),
        ("GET", "/a%5cb", &[("host", "a")], Err(Path)),
        ("GET", "/a%7F", &[("host", "a")], Err(Path)),
        ("GET", "/a%2", &[("host", "a")], Err(Path)),
        ("GET", "/a%zz", &[("host", "a")], Err(Path)),
        ("GET", "/a%+1", &[("host", "a")], Err(Path)),
        ("GET", "/a%20b%2Fc%C3%A9", &[("host", "a")], Ok(Target::Origin)),
        ("GET", "/?a=%00", &[("host", "a")], Ok(Target::Origin)),
    ];
    for (method, target, fields, expected) in cases {
        let mut p = head(method, target, fields);
        assert_eq!(check(&mut p), *expected, "{method} {target} {fields:?}");
    }
    let mut p = head("GET", "/", &[]);
    p.set_version(Version::HTTP_10);
    assert_eq!(check(&mut p), Ok(Target::Origin));
    let mut p = head("OPTIONS", "/", &[("host", "a"), ("max-forwards", "3")]);
    check(&mut p).unwrap();
    assert_eq!(all(&p.fields, "max-forwards"), ["2"]);
}

#[test]
#[rustfmt::skip]
fn hop_by_hop_fields_are_removed_and_connection_removes_no_protected_field() {
    let mut p = head("GET", "/", &[
        ("host", "a"), ("connection", "keep-alive, X-Hop, Cookie"), ("connection", "Authorization, host, X-Forwarded-For, content-length"),
        ("x-hop", "1"), ("cookie", "a=b"), ("authorization", "Basic x"), ("content-length", "3"), ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"), ("te", "gzip"), ("upgrade", "h2c"), ("http2-settings", "x"), ("trailer", "x-sum"),
        ("proxy-authorization", "Basic y"),
    ]);
    prepare_request(&mut p, &CTX);
    for gone in ["connection", "x-hop", "keep-alive", "proxy-connection", "te", "upgrade", "http2-settings", "proxy-authorization"] {
        assert_eq!(all(&p.fields, gone), [""; 0], "{gone}");
    }
    for (kept, value) in [("host", "a"), ("cookie", "a=b"), ("authorization", "Basic x"), ("content-length", "3"), ("trailer", "x-sum")] {
        assert_eq!(all(&p.fields, kept), [value], "{kept}");
    }
    assert_eq!(all(&p.fields, "x-forwarded-for"), ["192.0.2.1"]);
}

/// What the origin gets, line by line.
#[test]
fn lines_that_stay_are_as_they_were_sent() {
    let sent =
        b"GET / HTTP/1.1\r\nHOST: Shop.example\r\nX-Hop: 1\r\nAccept-ENCODING:gzip\r\nconnection: x-hop\r\n\
        cOOKIE: A=b\r\nContent_Length: 3\r\nX-Custom_Name: kept\r\n\r\n";
    let limits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 0 };
    let (mut p, _) = RequestParser::new().parse(sent, &limits).unwrap().unwrap();
    prepare_request(&mut p, &ForwardContext { forwarded: false, ..CTX });
    let mut text = Vec::new();
    p.fields.write_to(&mut text);
    let expected = "HOST: Shop.example\r\nAccept-ENCODING:gzip\r\ncOOKIE: A=b\r\nX-Custom_Name: kept\r\n\
        x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: Shop.example\r\n\
        via: 1.1 tidegate\r\nx-request-id: id-1\r\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn te_trailers_is_kept() {
    let mut p = head("GET", "/", &[("host", "a"), ("te", "gzip;q=0.5, Trailers"), ("connection", "te")]);
    prepare_request(&mut p, &CTX);
    assert_eq!(all(&p.fields, "te"), ["trailers"]);
    assert_eq!(all(&p.fields, "connection"), ["te"]);
}

#[test]
fn upgrade_is_passed_on_only_to_tunnel() {
    let fields = [("host", "a"), ("connection", "Upgrade"), ("upgrade", "websocket")];
    for (keep, expected) in [(true, &["websocket"][..]), (false, &[])] {
        let mut p = head("GET", "/", &fields);
        prepare_request(&mut p, &ForwardContext { keep_upgrade: keep, ..CTX });
        assert_eq!(all(&p.fields, "upgrade"), expected);
        assert_eq!(p.fields.contains("connection".into()), keep);
    }
    for protocols in ["h2c", "websocket, H2C"] {
        let mut p = head(
            "GET",
            "/",
            &[("host", "a"), ("connection", "Upgrade, HTTP2-Settings"), ("upgrade", protocols)],
        );
        prepare_request(&mut p, &ForwardContext { keep_upgrade: true, ..CTX });
        assert_eq!(
            all(&p.fields, "upgrade"),
            [""; 0],
            "{protocols}: the gateway could not read what follows"
        );
        assert!(!p.fields.contains("connection".into()) && !asks_to_switch(&p.fields));
    }
    let mut p = head("GET", "/", &[("host", "a"), ("upgrade", "websocket")]);
    prepare_request(&mut p, &ForwardContext { keep_upgrade: true, ..CTX });
    assert_eq!(all(&p.fields, "upgrade"), [""; 0], "not named by Connection: not meant for us");
}

#[test]
#[rustfmt::skip]
fn forwarding_fields_are_replaced_or_extended() {
    let fields = [
        ("host", "shop.example:8080"), ("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "10.0.0.2"), ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil"), ("x-forwarded-port", "1"), ("x-real-ip", "10.0.0.3"), ("forwarded", "for=10.0.0.1"), ("via", "1.0 cdn"),
        ("X_Forwarded_For", "10.9.9.9"), ("x-request-id", "theirs"),
    ];
    let mut p = head("GET", "/", &fields);
    prepare_request(&mut p, &CTX);
    let expect = [
        ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "shop.example:8080"),
        ("forwarded", "for=192.0.2.1;proto=http;host=\"shop.example:8080\""), ("via", "1.0 cdn, 1.1 tidegate"), ("x-request-id", "id-1"),
    ];
    for (name, value) in expect {
        assert_eq!(all(&p.fields, name), [value], "{name}");
    }
    for name in ["x-forwarded-port", "x-real-ip", "x_forwarded_for"] {
        assert!(!p.fields.contains(name.into()), "{name}");
    }

    let mut p = head("GET", "/", &fields);
    prepare_request(&mut p, &ForwardContext { trusted: true, peer: "2001:db8::1".parse().unwrap(), ..CTX });
    let expect = [
        ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 2001:db8::1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "evil"),
        ("forwarded", "for=10.0.0.1, for=\"[2001:db8::1]\";proto=http;host=\"shop.example:8080\""), ("x-forwarded-port", "1"),
    ];
    for (name, value) in expect {
        assert_eq!(all(&p.fields, name), [value], "{name}");
    }
    assert!(!p.fields.contains("x_forwarded_for".into()));

    let mut p = head("GET", "/", &fields);
    prepare_request(&mut p, &ForwardContext { trusted: true, forwarded: false, via: "", host: "origin", ..CTX });
    assert!(!p.fields.contains("forwarded".into()));
    assert_eq!((all(&p.fields, "via"), all(&p.fields, "host")), (vec!["1.0 cdn".into()], vec!["origin".into()]));
}

#[test]
#[rustfmt::skip]
fn tickets_and_own_cookies_do_not_reach_the_origin() {
    let cases = [
        ("/a?tgx=1", "/a?tgx=1"), ("/a?", "/a?"),
        ("/a?&&b", "/a?&&b"), ("http://h/a?b", "/a?b"), ("http://h", "/"), ("http://h/?q", "/?q"),
    ];
    for (before, after) in cases {
        let mut p = head("GET", before, &[("host", "h")]);
        prepare_request(&mut p, &CTX);
        assert_eq!(p.target(), after, "{before}");
    }
    let cookies: &[(&[&str], &[&str])] = &[
        (&["a=b; tg=1; c=d"], &["a=b; c=d"]), (&["tg=1"], &[]), (&["tg_pass=1;tg=2", "x=tg"], &["x=tg"]), (&["tgx=1; xtg=2"], &["tgx=1; xtg=2"]),
    ];
    for (before, after) in cookies {
        let fields: Vec<_> = std::iter::once(("host", "h")).chain(before.iter().map(|c| ("cookie", *c))).collect();
        let mut p = head("GET", "/", &fields);
        prepare_request(&mut p, &CTX);
        assert_eq!(all(&p.fields, "cookie"), *after, "{before:?}");
    }
}

#[test]
fn request_ids_come_from_trusted_peers_only() {
    let long = "x".repeat(129);
    let cases = [
        ("abc", true, "abc"),
        ("abc", false, "new"),
        ("a b", true, "new"),
        ("", true, "new"),
        (&long, true, "new"),
    ];
    for (given, trusted, expected) in cases {
        assert_eq!(
            request_id(&fields(&[("x-request-id", given)]), trusted).unwrap_or("new"),
            expected,
            "{given:?} {trusted}"
        );
    }
    assert_eq!(request_id(&Fields::new(), true), None);
}

#[test]
#[rustfmt::skip]
fn the_client_is_found_from_the_right() {
    let trusted: Vec<IpNet> = ["10.0.0.0/8", "2001:db8::/32"].iter().map(|n| n.parse().unwrap()).collect();
    let cases: &[(&str, Lines, &str)] = &[
        ("192.0.2.9", &[("x-forwarded-for", "1.1.1.1")], "192.0.2.9"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &[("x-forwarded-for", "1.1.1.1")], "1.1.1.1"),
        ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, 1.1.1.1, 10.0.0.2")], "1.1.1.1"),
        ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "1.1.1.1")], "1.1.1.1"),
        ("10.0.0.1", &[("x-forwarded-for", "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
        ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, unknown, 10.0.0.2")], "10.0.0.2"),
        ("10.0.0.1", &[("x-forwarded-for", "1.1.1.1:1234")], "1.1.1.1"),
        ("::ffff:10.0.0.1", &[("x-forwarded-for", "1.1.1.1")], "1.1.1.1"),
        ("10.0.0.1", &[("forwarded", "for=6.6.6.6, for=\"[2001:db8::7]:80\";proto=http")], "6.6.6.6"),
        ("10.0.0.1", &[("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "7.7.7.7")], "7.7.7.7"),
        ("10.0.0.1", &[("forwarded", "For=\"1.1.1.1:80\";by=x")], "1.1.1.1"),
        ("10.0.0.1", &[("forwarded", "for=\"a,for=6.6.6.6\"")], "10.0.0.1"),
        ("10.0.0.1", &[("forwarded", "proto=http")], "10.0.0.1"),
    ];
    for (peer, fields, expected) in cases {
        let got = client_ip(peer.parse().unwrap(), &self::fields(fields), &trusted);
        assert_eq!(got, expected.parse::<IpAddr>().unwrap(), "{peer} {fields:?}");
    }
}

/// Smuggling needs two parsers that read one length differently.
#[test]
fn requests_and_responses_have_one_rule_for_content_length() {
    let cases: &[(&[&str], Option<u64>)] = &[
        (&["0"], Some(0)),
        (&["5"], Some(5)),
        (&["9223372036854775807"], Some(i64::MAX as u64)),
        (&["9223372036854775808"], None),
        (&["5, 5"], None),
        (&["5", "5"], None),
        (&["5", "6"], None),
        (&["+5"], None),
        (&["5 5"], None),
        (&["0x5"], None),
        (&[""], None),
        (&[","], None),
    ];
    let limits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 0 };
    for (values, expected) in cases {
        let lines: String = values.iter().map(|v| format!("Content-Length: {v}\r\n")).collect();
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let parsed = RequestParser::new().parse(request.as_bytes(), &limits);
        let framing = parsed.map(|parsed| parsed.unwrap().1.framing);
        let of_request = match framing {
            Ok(Framing::Fixed(n)) => Some(n),
            Ok(Framing::None) => Some(0),
            Ok(other) => unreachable!("no coding was named: {other:?}"),
            Err(_) => None,
        };
        let response = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let asked = Asked { head: false, upgrade: false };
        let parsed = ResponseParser::new().parse(response.as_bytes(), asked, &ResponseLimits::default());
        let of_response = parsed.ok().and_then(|parsed| parsed.unwrap().1.length);
        let fields: Vec<_> = values.iter().map(|v| ("content-length", *v)).collect();
        assert_eq!((of_request, of_response), (*expected, *expected), "{values:?}");
        assert_eq!(content_length(&headers(&fields)).ok().flatten(), *expected, "{values:?}");
    }
}

#[test]
#[rustfmt::skip]
fn responses_are_prepared_or_rejected() {
    type Case = (u16, Method, Result<&'static [&'static str], BadStatus>);
    let cases: &[Case] = &[
        (200, Method::GET, Ok(&["3"])),
        (205, Method::GET, Ok(&[])),
        (205, Method::HEAD, Ok(&["3"])),
        (304, Method::GET, Ok(&["3"])),
        (599, Method::GET, Ok(&["3"])),
        (600, Method::GET, Err(BadStatus)),
        (999, Method::GET, Err(BadStatus)),
        (101, Method::GET, Err(BadStatus)),
        (102, Method::GET, Err(BadStatus)),
    ];
    for (status, method, expected) in cases {
        let mut r = ResponseHead::new(StatusCode::from_u16(*status).unwrap());
        r.fields = fields(&[("content-length", "3"), ("upgrade", "x"), ("keep-alive", "timeout=5")]);
        let got = prepare_response(&mut r, method, "tidegate", false).map(|()| all(&r.fields, "content-length"));
        assert_eq!(got, expected.map(|l| l.iter().map(|s| s.to_string()).collect()), "{status} {method}");
        if expected.is_ok() {
            assert!(!r.fields.contains("upgrade".into()) && !r.fields.contains("keep-alive".into()), "{status}");
        }
    }
    let mut r = ResponseHead::new(StatusCode::SWITCHING_PROTOCOLS);
    r.fields = fields(&[("upgrade", "websocket"), ("connection", "Upgrade, x-hop"), ("X-Hop", "1"), ("sec-websocket-accept", "x")]);
    prepare_response(&mut r, &Method::GET, "tidegate", true).unwrap();
    assert_eq!((all(&r.fields, "upgrade"), all(&r.fields, "connection")), (vec!["websocket".into()], vec!["upgrade".into()]));
    assert_eq!((all(&r.fields, "x-hop"), all(&r.fields, "via")), (vec![], vec!["1.1 tidegate".to_string()]));

    let mut t = headers(&[("x-sum", "1"), ("content-length", "5"), ("set_cookie", "a"), ("server-timing", "x")]);
    prepare_trailers(&mut t);
    assert_eq!(t.len(), 2);
}
