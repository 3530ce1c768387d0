/*
 * The part of the kernel's interface that the programs use: types, contexts, helpers, declarations of maps.
 *
 * Written down here, so that clang is all that a build needs: no kernel headers, no libbpf, no vmlinux.h.
 * All of it is stable (include/uapi/linux/bpf.h).
 */
#ifndef TIDEGATE_KERNEL_H
#define TIDEGATE_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/*
 * A function that the verifier checks once, by itself, and not again for each state of its callers: without
 * this the paths through the headers times those through the shapes are more than it follows. Pointers may
 * be null for it, and what they point to must be initialised. From Linux 5.12 on.
 */
#define SEPARATE __attribute__((noinline))

/* Declarations of maps: the loader reads them from the types of the members (BTF). */
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name
#define MAP_ARRAY(name, value) typeof(value) *name[]

enum map_type {
    MAP_HASH = 1,
    MAP_ARRAY_ = 2,
    MAP_PERCPU_ARRAY = 6,
    MAP_LRU_HASH = 9,
    MAP_ARRAY_OF_MAPS = 12,
    MAP_REUSEPORT_SOCKARRAY = 20,
};

/* Flags of a map: its elements are allocated when they are inserted. */
#define NO_PREALLOC 1

enum xdp_action {
    XDP_DROP = 1,
    XDP_PASS = 2,
    /* Send the frame out of the interface that it came from. */
    XDP_TX = 3,
};

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

enum { SK_DROP = 0, SK_PASS = 1 };

struct sk_reuseport_md {
    /* From the TCP header on. */
    u64 data;
    u64 data_end;
    u32 len;
    /* Big-endian. */
    u32 eth_protocol;
    u32 ip_protocol;
    u32 bind_inany;
    u32 hash;
    u32 pad;
    /* A listener of the group. */
    void *sk;
    void *migrating_sk;
};

/* Offsets count from the IP header. */
#define HDR_START_NET 1

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_ns)(void) = (void *)5;
static u64 (*socket_cookie)(void *sk) = (void *)46;
static long (*xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*load_bytes_relative)(const void *ctx, u32 offset, void *to, u32 length, u32 start) = (void *)68;
static long (*select_reuseport)(struct sk_reuseport_md *ctx, void *map, void *key, u64 flags) = (void *)82;
static u64 (*xdp_buff_len)(struct xdp_md *ctx) = (void *)188;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) ((u16)__builtin_bswap16(x))
#define BE32(x) ((u32)__builtin_bswap32(x))
#else
#define BE16(x) ((u16)(x))
#define BE32(x) ((u32)(x))
#endif

#endif
