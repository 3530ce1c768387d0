/*
 * The rules as both programs see them, and the search for the rule of a SYN.
 *
 * Rules are four-tuples with prefixes (Voigt et al., Table 1), and the most specific that matches wins. The
 * search is tuple-space search (Srinivasan, Suri, Varghese 1999): of all rules only few *shapes* are
 * different (lengths of the prefixes, ports given or not). Per shape the packet's fields are masked and
 * looked up in one hash table, the most specific shape first. So a packet costs a lookup per shape, however
 * many rules there are. Rejected: a list of rules (linear), one LPM trie (orders by one address only).
 *
 *   rule_sets[0] ─► { generation, shapes }         one array for each set of rules, replaced as a whole
 *   rules{generation, shape, masked fields} ─► rule
 *   buckets[rule.id], counters[rule.id]            outlive the set: a rule of the same name keeps its id
 *
 * **Updates without a gap.** User space inserts the rules of the next generation, and then replaces the
 * array in rule_sets[0] by one atomic store. A packet sees the old rules or the new ones, all of them. The
 * kernel returns from that store when no program can still see the old array (synchronize_rcu); only then
 * the old rules are deleted.
 */
#ifndef TIDEGATE_RULES_H
#define TIDEGATE_RULES_H

#include "kernel.h"
#include "frame.h"

/* Shapes of a family in one set of rules; MAX_SHAPES in crates/kernel/src/table.rs. */
#define MAX_SHAPES 64

enum excess { EXCESS_DROP = 0, EXCESS_RESET = 1, EXCESS_SLOW = 2 };

/* What a bucket does; the other two need none. */
enum limit { LIMIT_RATE = 0, LIMIT_NONE = 1, LIMIT_ALL = 2 };

/* Masks of the fields; layouts as in crates/kernel/src/layout.rs. */
struct shape {
    u64 src[2];
    u64 dst[2];
    u16 sport;
    u16 dport;
    u32 pad;
};

struct rule_set {
    u32 generation;
    /* By family. */
    u32 shapes[2];
    u32 pad;
    struct shape shape[2 * MAX_SHAPES];
};

struct rule_key {
    u64 src[2];
    u64 dst[2];
    u16 sport;
    u16 dport;
    u32 generation;
    /* The place in rule_set.shape, which tells the families apart too. */
    u32 shape;
    u32 pad;
};

struct rule {
    u32 id;
    u8 excess;
    u8 priority;
    u8 limit;
    u8 pad;
    /* In sixteenths of a ns: the distance of two SYNs at the rule's rate, and burst times that. */
    u64 interval;
    u64 depth;
};

struct one_set {
    MAP_UINT(type, MAP_ARRAY_);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_TYPE(value, struct rule_set);
} first_set SEC(".maps");

struct {
    MAP_UINT(type, MAP_ARRAY_OF_MAPS);
    MAP_UINT(max_entries, 1);
    MAP_TYPE(key, u32);
    MAP_ARRAY(values, struct one_set);
} rule_sets SEC(".maps") = {
    .values = { &first_set },
};

struct {
    MAP_UINT(type, MAP_HASH);
    /* Two generations of rules in both families; user space sets the number. */
    MAP_UINT(max_entries, 65536);
    MAP_UINT(map_flags, NO_PREALLOC);
    MAP_TYPE(key, struct rule_key);
    MAP_TYPE(value, struct rule);
} rules SEC(".maps");

/* SYNs that a rule with excess "slow" let pass beyond its rate: the connections wait behind all others. */
struct {
    MAP_UINT(type, MAP_LRU_HASH);
    MAP_UINT(max_entries, 65536);
    MAP_TYPE(key, struct syn);
    MAP_TYPE(value, u64);
} slow SEC(".maps");

/* Whether a rule is about `syn`: `found` is a copy of it. */
SEPARATE int find_rule(const struct syn *syn, struct rule *found)
{
    u32 zero = 0, first, count, i;
    struct rule_set *set;
    void *newest;

    if (!syn || !found)
        return 0;
    newest = map_lookup(&rule_sets, &zero);
    if (!newest)
        return 0;
    set = map_lookup(newest, &zero);
    if (!set)
        return 0;
    first = syn->family ? MAX_SHAPES : 0;
    count = set->shapes[syn->family ? 1 : 0];
    for (i = 0; i < MAX_SHAPES && i < count; i++) {
        struct shape *shape = &set->shape[first + i];
        struct rule_key key = {
            .src = { syn->src[0] & shape->src[0], syn->src[1] & shape->src[1] },
            .dst = { syn->dst[0] & shape->dst[0], syn->dst[1] & shape->dst[1] },
            .sport = syn->sport & shape->sport,
            .dport = syn->dport & shape->dport,
            .generation = set->generation,
            .shape = first + i,
        };
        struct rule *rule = map_lookup(&rules, &key);

        if (rule) {
            *found = *rule;
            return 1;
        }
    }
    return 0;
}

#endif
