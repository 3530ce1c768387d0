/*
 * Prioritised listen queue (Voigt et al., section 4): a connection waits to be accepted by its rule's
 * priority.
 *
 * The paper sorts one listen queue. Here each priority has listening sockets of its own, all of them bound
 * to the same address (SO_REUSEPORT), and this program chooses the socket when the SYN comes. A server that
 * accepts from the highest priority that has somebody waiting has the paper's order. One more thing
 * follows: the queues have lengths of their own, so that a crowd fills its own queue only.
 *
 *   groups{cookie of a listener} ─► { first, priorities, per_priority }
 *   sockets[first + priority * per_priority + hash % per_priority]
 *
 * All listening addresses share the program and the map of sockets; the group is found by the cookie of any
 * of its listeners. If a socket is gone, the kernel chooses one of the group by hash: no connection is ever
 * refused here.
 */
#include "rules.h"

/* How long a SYN that was let pass beyond its rate is remembered: as long as SYN cookies are good for. */
#define SLOW_NS (60ull * 1000000000)

/* Listening addresses times priorities times workers. */
#define MAX_SOCKETS 4096

struct group {
    u32 first;
    u32 priorities;
    u32 per_priority;
    /* The priority of connections that no rule is about. */
    u32 unmatched;
};

struct {
    MAP_UINT(type, MAP_HASH);
    MAP_UINT(max_entries, MAX_SOCKETS);
    MAP_TYPE(key, u64);
    MAP_TYPE(value, struct group);
} groups SEC(".maps");

struct {
    MAP_UINT(type, MAP_REUSEPORT_SOCKARRAY);
    MAP_UINT(max_entries, MAX_SOCKETS);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, u32);
} sockets SEC(".maps");

INLINE int read_connection(struct sk_reuseport_md *ctx, struct syn *syn)
{
    u16 *ports = (void *)ctx->data;

    if ((void *)(ports + 2) > (void *)ctx->data_end)
        return 0;
    syn->sport = ports[0];
    syn->dport = ports[1];
    if ((u16)ctx->eth_protocol == BE16(ETHERTYPE_IPV4)) {
        struct ipv4 ip;

        if (load_bytes_relative(ctx, 0, &ip, sizeof(ip), HDR_START_NET))
            return 0;
        syn->src[0] = ip.src;
        syn->dst[0] = ip.dst;
        syn->src[1] = 0;
        syn->dst[1] = 0;
        syn->family = 0;
        return 1;
    }
    if ((u16)ctx->eth_protocol == BE16(ETHERTYPE_IPV6)) {
        struct ipv6 ip;

        if (load_bytes_relative(ctx, 0, &ip, sizeof(ip), HDR_START_NET))
            return 0;
        syn->src[0] = ip.src[0];
        syn->src[1] = ip.src[1];
        syn->dst[0] = ip.dst[0];
        syn->dst[1] = ip.dst[1];
        syn->family = 1;
        return 1;
    }
    return 0;
}

SEC("sk_reuseport")
int prioritise(struct sk_reuseport_md *ctx)
{
    u32 priority, place;
    u64 cookie, *since;
    struct group *group;
    struct rule rule = {};
    struct syn syn = {};
    int is_ruled;

    if (!ctx->sk)
        return SK_PASS;
    cookie = socket_cookie(ctx->sk);
    group = map_lookup(&groups, &cookie);
    if (!group || !group->priorities || !group->per_priority || !read_connection(ctx, &syn))
        return SK_PASS;
    is_ruled = find_rule(&syn, &rule);
    priority = is_ruled ? rule.priority : group->unmatched;
    if (is_ruled && rule.excess == EXCESS_SLOW) {
        since = map_lookup(&slow, &syn);
        if (since && ktime_ns() - *since < SLOW_NS)
            priority = group->priorities;
    }
    if (priority >= group->priorities)
        priority = group->priorities - 1;
    place = group->first + priority * group->per_priority + ctx->hash % group->per_priority;
    select_reuseport(ctx, &sockets, &place, 0);
    return SK_PASS;
}
