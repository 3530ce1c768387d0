//! The events that are counted. Their names are part of the interface: dashboards and alerts use them.

macro_rules! events {
    ($($variant:ident $name:literal $help:literal)*) => {
        /// Something that happened and is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Event {
            $(#[doc = $help] $variant,)*
        }

        impl Event {
            /// Every event, in the order of the request path.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its stable name, in snake case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// One line on what it counts.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)*
                }
            }
        }
    };
}

events! {
    Connections "connections" "Visitor connections accepted."
    ConnectionsRefused "connections_refused" "Visitor connections closed at once because limits.max_connections was reached."
    ProxyHeadersRefused "proxy_headers_refused" "Connections closed because they did not begin with a PROXY header, or not from a trusted proxy."
    TlsHandshakesFull "tls_handshakes_full" "TLS handshakes with visitors that began a session."
    TlsHandshakesResumed "tls_handshakes_resumed" "TLS handshakes with visitors that resumed an earlier session."
    TlsHandshakesFailed "tls_handshakes_failed" "TLS handshakes that failed: no TLS, no version or cipher in common, no certificate, or the visitor left."
    TlsHandshakesTimeout "tls_handshakes_timeout" "TLS handshakes that took longer than limits.header_timeout."
    Requests "requests" "Request heads read."
    RequestsBad "requests_bad" "Requests refused as malformed or ambiguous."
    HeaderTimeout "header_timeout" "Connections closed because a request head took longer than limits.header_timeout."
    IdleTimeout "idle_timeout" "Connections closed after limits.idle_timeout without a request."
    Http2Floods "http2_floods" "HTTP/2 connections ended because of a flood of frames (http2.max_resets, http2.max_control_frames, and what HTTP/2 itself bounds)."
    BodyTimeout "body_timeout" "Requests ended because a body stalled for longer than limits.body_timeout."
    RequestTimeout "request_timeout" "Requests ended because they took longer than limits.request_timeout."
    UriTooLong "uri_too_long" "Requests refused because the target exceeded limits.max_uri_bytes."
    HeadersTooLarge "headers_too_large" "Requests refused because the head exceeded limits.max_header_bytes or limits.max_headers."
    BodyTooLarge "body_too_large" "Requests refused because the body exceeded limits.max_body_bytes."
    ExpectationFailed "expectation_failed" "Requests refused because of an expectation other than 100-continue."
    Entered "entered" "Requests let in at once, without a wait."
    EnteredByTicket "entered_by_ticket" "Requests let in with a ticket whose turn had come."
    EnteredByPass "entered_by_pass" "Requests let in with a pass."
    WaitingAnswers "waiting_answers" "Waiting pages and waiting API answers sent."
    StatusPolls "status_polls" "Status requests of waiting pages."
    Full "full" "Visitors told that the room is full (beyond room.max_wait)."
    OverShare "over_share" "Visitors told that the room is full because their address prefix holds its share (room.prefix_share)."
    TicketForged "ticket_forged" "Tickets and passes refused as malformed, altered or another visitor's."
    TicketUnknownKey "ticket_unknown_key" "Tickets of keys that are not in the ring (lost or rotated away), whose visitors got a new position."
    TicketExpired "ticket_expired" "Tickets and passes that had run out."
    TicketEarly "ticket_early" "Tickets shown before their turn."
    TicketLate "ticket_late" "Tickets shown after their turn, within room.grace."
    TicketReplayed "ticket_replayed" "Tickets shown again after they were redeemed."
    SessionsRefused "sessions_refused" "New sessions refused because no session slot was free."
    IngressShed "ingress_shed" "Requests refused because their class's ingress bucket was empty."
    IngressHeld "ingress_held" "Requests sent to the waiting room because their class's ingress bucket was empty."
    RuleRefused "rule_refused" "Requests refused by a rule, or cut off unanswered with their connection. Those given a lighter URL instead are not."
    ThrottleRefused "throttle_refused" "Requests refused by a throttle of their request type."
    QuotaRefused "quota_refused" "Requests refused because the quota of their service level was used up."
    QuotaWouldRefuse "quota_would_refuse" "Requests beyond the quota of their service level that passed because of enforcement.shadow."
    RoomWouldWait "room_would_wait" "Visitors who would have waited in the room and were let in because of enforcement.shadow."
    RoomWouldRefuse "room_would_refuse" "Visitors whom a full room would have turned away and who were let in because of enforcement.shadow."
    SessionsWouldRefuse "sessions_would_refuse" "New sessions that would have been refused for want of a slot and were let in because of enforcement.shadow."
    QueueFull "queue_full" "Requests refused because queue.max_length or their class's own was reached."
    QueueTimeout "queue_timeout" "Requests refused after queue.max_wait at the gate."
    QueuePatience "queue_patience" "Requests refused because the patience of their class or visitor ended at the gate."
    QueueCodel "queue_codel" "Requests refused to keep the wait in their class's queue short (CoDel)."
    ClientGone "client_gone" "Requests whose visitor left before the answer was complete."
    OriginConnectFailed "origin_connect_failed" "Connections that a replica refused or that failed."
    OriginConnectTimeout "origin_connect_timeout" "Connections to a replica that took longer than origin.connect_timeout."
    OriginFirstByteTimeout "origin_first_byte_timeout" "Requests whose answer did not begin within origin.first_byte_timeout."
    OriginReadTimeout "origin_read_timeout" "Answers that stalled for longer than origin.read_timeout."
    OriginReset "origin_reset" "Replica connections lost before the answer was complete."
    OriginBadResponse "origin_bad_response" "Answers of a replica that were malformed."
    Retries "retries" "Requests sent to another replica after a failure."
    RetryBudgetEmpty "retry_budget_empty" "Retries not made because origin.retry_budget was used up."
    StaleConnection "stale_connection" "Reused replica connections found dead before the first byte; the request went on another."
    Upgrades "upgrades" "Connections turned into tunnels (WebSocket and others)."
    UpgradeBytes "upgrade_bytes" "Bytes carried through tunnels, both directions."
    NoReplica "no_replica" "Requests refused because no replica was healthy."
    Panics "panics" "Requests ended by a fault in Tidegate itself. Please report these."
}

impl Event {
    /// The events that shed a request, which are also counted per class ([`super::Shard::shed`]).
    pub const SHED: [Self; 10] = [
        Self::Full,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::QueuePatience,
        Self::QueueCodel,
        Self::IngressShed,
        Self::SessionsRefused,
        Self::RuleRefused,
        Self::QuotaRefused,
        Self::ThrottleRefused,
    ];

    pub const COUNT: usize = Self::ALL.len();
}
