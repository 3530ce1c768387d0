/*
 * TCP SYN policing (Voigt et al., section 3): a token bucket per rule, applied to SYNs before the stack
 * sees them.
 *
 * "TCP SYN packets that are not compliant are silently dropped." XDP runs before the kernel allocates
 * anything for the packet, so a refusal costs some hundred nanoseconds. Only bare SYNs are touched:
 * established connections are never slowed, and neither are answers to connections that this host opens.
 *
 * **The bucket** is the generic cell rate algorithm, as in crates/core/src/bucket.rs: one number, the
 * theoretical arrival time T, global to all CPUs. A SYN at t
 *
 *   passes  if  max(T, t) + interval <= t + depth,    then  T := max(T, t) + interval
 *
 * so that over 60 s at most 60 r + b pass. T is replaced by compare-and-swap. If another CPU was faster, it
 * let a SYN of the same rule pass in that instant; after RETRIES of these the SYN is refused. So the bound
 * is never exceeded, and a refusal that should have been a pass needs RETRIES passes of other CPUs within
 * the same instant. Rejected: buckets per CPU with a share of the rate (a flood that one CPU receives gets
 * a part of it only), a lock (spins in the network's interrupt).
 *
 * Refused SYNs do not write T, so a flood does not contend for its cache line.
 *
 * Time is counted in sixteenths of a nanosecond since boot: 36 years fit, and the interval of 10 million
 * SYNs per second is off by 0.03 % at most.
 */
#include "rules.h"

#define RETRIES 16

struct counters {
    /* seen = passed + dropped + reset + slowed */
    u64 seen;
    u64 passed;
    u64 dropped;
    u64 reset;
    u64 slowed;
};

struct totals {
    u64 syns;
    /* SYNs that no rule is about: they pass. */
    u64 unmatched;
};

/* T of each rule; 0 for a rule that is new. */
struct {
    MAP_UINT(type, MAP_ARRAY_);
    MAP_UINT(max_entries, 16384);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u64);
} buckets SEC(".maps");

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 16384);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct counters);
} counters SEC(".maps");

struct {
    MAP_UINT(type, MAP_PERCPU_ARRAY);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct totals);
} totals SEC(".maps");

/* The clock of tests: `step` nanoseconds pass with each reading, on whatever CPU. */
struct test_clock {
    u64 now;
    u64 step;
};

struct {
    MAP_UINT(type, MAP_ARRAY_);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct test_clock);
} test_clock SEC(".maps");

/* Set by tests before loading. It is 0 otherwise, and the verifier removes what depends on it. */
const volatile u8 has_test_clock = 0;

INLINE u64 now_ns(void)
{
    if (has_test_clock) {
        u32 zero = 0;
        struct test_clock *clock = map_lookup(&test_clock, &zero);

        return clock ? __sync_fetch_and_add(&clock->now, clock->step) : 0;
    }
    return ktime_ns();
}

/* Takes a SYN from the rule's bucket, if it has one left. */
INLINE int conforms(const struct rule *rule)
{
    u64 now, old, next, *bucket;
    u32 id = rule->id;
    int i;

    if (rule->limit != LIMIT_RATE)
        return rule->limit == LIMIT_NONE;
    bucket = map_lookup(&buckets, &id);
    if (!bucket)
        return 1;
    now = now_ns() << 4;
    for (i = 0; i < RETRIES; i++) {
        old = *(volatile u64 *)bucket;
        next = (old > now ? old : now) + rule->interval;
        if (next > now + rule->depth)
            return 0;
        if (__sync_val_compare_and_swap(bucket, old, next) == old)
            return 1;
    }
    return 0;
}

/* Both halves of a word, for the Internet checksum: which half is which makes no difference. */
INLINE u32 halves(u32 word)
{
    return (word & 0xffff) + (word >> 16);
}

INLINE u32 halves64(u64 word)
{
    return halves(word) + halves(word >> 32);
}

INLINE u16 checksum(u32 sum)
{
    return ~halves(halves(sum));
}

/*
 * Makes the frame the reset that the stack would answer with (RFC 9293, 3.10.7.1), and sends it back.
 * Frames with IP options, extension headers or fragments are dropped instead: an answer to them needs more
 * than swapped fields.
 *
 * Checksums are added up from what is written, and not from the frame.
 */
INLINE int answer_reset(struct xdp_md *ctx, const struct where *where, const struct syn *syn)
{
    u32 length = where->tcp + sizeof(struct tcp), frame = frame_length(ctx), sum, data, ack;
    struct eth *eth = AT(ctx, 0, sizeof(*eth));
    struct tcp *tcp = AT(ctx, where->tcp, sizeof(*tcp));
    u8 mac[6];

    if (!where->is_plain || !eth || !tcp)
        return XDP_DROP;
    __builtin_memcpy(mac, eth->dst, 6);
    __builtin_memcpy(eth->dst, eth->src, 6);
    __builtin_memcpy(eth->src, mac, 6);

    /* A SYN with data (TCP Fast Open) is acknowledged with it. */
    data = where->segment - (tcp->offset >> 4) * 4;
    ack = BE32(BE32(tcp->seq) + 1 + data);
    /* The pseudo-header, and the header's length and flags. */
    sum = halves64(syn->src[0]) + halves64(syn->src[1]) + halves64(syn->dst[0]) + halves64(syn->dst[1]) +
          BE16(TCP) + BE16(sizeof(*tcp)) + syn->sport + syn->dport + halves(ack) + BE16(0x5000 | RST | ACK);
    tcp->sport = syn->dport;
    tcp->dport = syn->sport;
    tcp->seq = 0;
    tcp->ack = ack;
    tcp->offset = 5 << 4;
    tcp->flags = RST | ACK;
    tcp->window = 0;
    tcp->checksum = checksum(sum);
    tcp->urgent = 0;

    if (syn->family == 0) {
        struct ipv4 *ip = AT(ctx, where->ip, sizeof(*ip));

        if (!ip)
            return XDP_DROP;
        ip->src = ip->dst;
        ip->dst = syn->src[0];
        ip->tos = 0;
        ip->length = BE16(sizeof(*ip) + sizeof(*tcp));
        ip->id = 0;
        ip->fragment = BE16(0x4000);
        ip->ttl = 64;
        sum = BE16(0x4500) + BE16(sizeof(*ip) + sizeof(*tcp)) + BE16(0x4000) + BE16(64 << 8 | TCP);
        ip->checksum = checksum(sum + halves64(syn->src[0]) + halves64(syn->dst[0]));
    } else {
        struct ipv6 *ip = AT(ctx, where->ip, sizeof(*ip));

        if (!ip)
            return XDP_DROP;
        ip->length = BE16(sizeof(*tcp));
        ip->hops = 64;
        ip->src[0] = syn->dst[0];
        ip->src[1] = syn->dst[1];
        ip->dst[0] = syn->src[0];
        ip->dst[1] = syn->src[1];
    }
    if (frame > length && xdp_adjust_tail(ctx, (int)length - (int)frame))
        return XDP_DROP;
    return XDP_TX;
}

/* What becomes of a SYN that its rule's bucket refuses. */
INLINE int refuse(struct xdp_md *ctx, const struct rule *rule, struct counters *count, const struct syn *syn,
          const struct where *where)
{
    int action;
    u64 now;

    switch (rule->excess) {
    case EXCESS_SLOW:
        now = ktime_ns();
        map_update(&slow, syn, &now, 0);
        count->slowed++;
        return XDP_PASS;
    case EXCESS_RESET:
        action = answer_reset(ctx, where, syn);
        if (action == XDP_TX)
            count->reset++;
        else
            count->dropped++;
        return action;
    default:
        count->dropped++;
        return XDP_DROP;
    }
}

#ifdef FRAGS
SEC("xdp.frags")
#else
SEC("xdp")
#endif
int syn_police(struct xdp_md *ctx)
{
    struct counters *count;
    struct totals *all;
    struct where where = {};
    struct rule rule = {};
    struct syn syn = {};
    u32 zero = 0, id;

    if (!read_syn(ctx, &syn, &where))
        return XDP_PASS;
    all = map_lookup(&totals, &zero);
    if (all)
        all->syns++;
    if (!find_rule(&syn, &rule)) {
        if (all)
            all->unmatched++;
        return XDP_PASS;
    }
    id = rule.id;
    count = map_lookup(&counters, &id);
    if (!count)
        return XDP_PASS;
    count->seen++;
    if (!conforms(&rule))
        return refuse(ctx, &rule, count, &syn, &where);
    /* The same ports may have been slow before. */
    if (rule.excess == EXCESS_SLOW)
        map_delete(&slow, &syn);
    count->passed++;
    return XDP_PASS;
}
