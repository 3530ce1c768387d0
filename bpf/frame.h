/*
 * Reads a connection request from an Ethernet frame. crates/core/src/policing/frame.rs says what is one,
 * and is the reference that this is tested against with random frames: change both.
 *
 * Everything is bounded for the verifier: two VLAN tags, eight extension headers, and no offset beyond
 * MAX_OFFSET.
 */
#ifndef TIDEGATE_FRAME_H
#define TIDEGATE_FRAME_H

#include "kernel.h"

#define MAX_TAGS 2
#define MAX_EXTENSIONS 8
/* Eight extension headers of 2048 bytes. */
#define MAX_OFFSET 0x4fff

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define TCP 6

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

/* A SYN as rules see it. All as on the wire; an IPv4 address is one word, which src[0] and dst[0] hold. */
struct syn {
    u64 src[2];
    u64 dst[2];
    u16 sport;
    u16 dport;
    /* 0: IPv4, 1: IPv6. */
    u32 family;
};

/* Where its headers are, for the answer. */
struct where {
    u32 ip;
    u32 tcp;
    /* Bytes of the TCP segment, its header included. */
    u32 segment;
    /* No options, no extension headers, no fragment. */
    u32 is_plain;
};

struct eth {
    u8 dst[6];
    u8 src[6];
    u16 type;
} __attribute__((packed));

struct vlan {
    u16 tag;
    u16 type;
} __attribute__((packed));

struct ipv4 {
    u8 version_ihl;
    u8 tos;
    u16 length;
    u16 id;
    u16 fragment;
    u8 ttl;
    u8 protocol;
    u16 checksum;
    u32 src;
    u32 dst;
} __attribute__((packed));

struct ipv6 {
    u8 version_class;
    u8 flow[3];
    u16 length;
    u8 next;
    u8 hops;
    u64 src[2];
    u64 dst[2];
} __attribute__((packed));

struct extension {
    u8 next;
    u8 length;
    /* In a fragment header: 13 bits of offset, two reserved ones, and whether more fragments follow. */
    u16 fragment;
    u32 rest;
} __attribute__((packed));

struct tcp {
    u16 sport;
    u16 dport;
    u32 seq;
    u32 ack;
    u8 offset;
    u8 flags;
    u16 window;
    u16 checksum;
    u16 urgent;
} __attribute__((packed));

/* `size` bytes at `offset` of the frame, or 0 if they are not all there. */
#define AT(ctx, offset, size) at((void *)(u64)(ctx)->data, (void *)(u64)(ctx)->data_end, (offset), (size))
INLINE void *at(void *data, void *end, u32 offset, u32 size)
{
    void *start;

    if (offset > MAX_OFFSET)
        return 0;
    start = data + offset;
    return start + size > end ? 0 : start;
}

/* Length of the frame. Of a jumbo frame in several buffers `data` shows the first, where all headers are. */
INLINE u32 frame_length(struct xdp_md *ctx)
{
#ifdef FRAGS
    return xdp_buff_len(ctx);
#else
    return ctx->data_end - ctx->data;
#endif
}

/* IPv6's chain of headers. Whether it leads to TCP; `offset`, `left`: where, and the bytes there. */
INLINE int skip_extensions(struct xdp_md *ctx, u8 next, u32 *offset, u32 *left, int *is_cut)
{
    struct extension *header;
    u32 length, at_most = *left, here = *offset;
    int i;

    for (i = 0; i < MAX_EXTENSIONS && next != TCP; i++) {
        header = AT(ctx, here, sizeof(*header));
        if (!header || at_most < sizeof(*header))
            return 0;
        switch (next) {
        case 44:
            if (header->fragment & BE16(0xfff8))
                return 0;
            if (header->fragment & BE16(1))
                *is_cut = 1;
            length = 8;
            break;
        case 51:
            length = ((u32)header->length + 2) * 4;
            break;
        case 0:
        case 43:
        case 60:
        case 135:
        case 139:
        case 140:
            length = ((u32)header->length + 1) * 8;
            break;
        default:
            return 0;
        }
        if (length > at_most)
            return 0;
        next = header->next;
        here += length;
        at_most -= length;
    }
    *offset = here;
    *left = at_most;
    return next == TCP;
}

/* Whether the frame is a connection request. */
SEPARATE int read_syn(struct xdp_md *ctx, struct syn *syn, struct where *where)
{
    struct eth *eth = AT(ctx, 0, sizeof(*eth));
    u32 offset = sizeof(*eth), frame = frame_length(ctx), left, header;
    int i, is_cut = 0, is_plain = 1;
    struct tcp *tcp;
    u8 *bytes, length;
    u16 type;

    if (!syn || !where || !eth)
        return 0;
    type = eth->type;
    for (i = 0; i < MAX_TAGS; i++) {
        if (type == BE16(0x8100) || type == BE16(0x88a8)) {
            struct vlan *vlan = AT(ctx, offset, sizeof(*vlan));

            if (!vlan)
                return 0;
            type = vlan->type;
            offset += sizeof(*vlan);
        }
    }
    where->ip = offset;
    if (type == BE16(ETHERTYPE_IPV4)) {
        struct ipv4 *ip = AT(ctx, offset, sizeof(*ip));

        if (!ip)
            return 0;
        header = (ip->version_ihl & 0x0f) * 4;
        left = BE16(ip->length);
        if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) || left < header || offset + left > frame)
            return 0;
        if (ip->fragment & BE16(0x1fff) || ip->protocol != TCP)
            return 0;
        is_cut = !!(ip->fragment & BE16(0x2000));
        is_plain = header == sizeof(*ip);
        syn->src[0] = ip->src;
        syn->dst[0] = ip->dst;
        syn->src[1] = 0;
        syn->dst[1] = 0;
        syn->family = 0;
        offset += header;
        left -= header;
    } else if (type == BE16(ETHERTYPE_IPV6)) {
        struct ipv6 *ip = AT(ctx, offset, sizeof(*ip));

        if (!ip || ip->version_class >> 4 != 6)
            return 0;
        left = BE16(ip->length);
        if (offset + sizeof(*ip) + left > frame)
            return 0;
        syn->src[0] = ip->src[0];
        syn->src[1] = ip->src[1];
        syn->dst[0] = ip->dst[0];
        syn->dst[1] = ip->dst[1];
        syn->family = 1;
        offset += sizeof(*ip);
        is_plain = ip->next == TCP;
        if (!skip_extensions(ctx, ip->next, &offset, &left, &is_cut))
            return 0;
    } else {
        return 0;
    }
    where->tcp = offset;
    where->segment = left;
    where->is_plain = is_plain && !is_cut;
    if (left < sizeof(*tcp)) {
        /* A first fragment may show less than a header: the ports at least, flags if it has 14 bytes. */
        bytes = AT(ctx, offset, 4);
        if (!is_cut || left < 4 || !bytes)
            return 0;
        syn->sport = *(u16 *)bytes;
        syn->dport = *(u16 *)(bytes + 2);
        if (left < 14)
            return 1;
        bytes = AT(ctx, offset, 14);
        return bytes && (bytes[13] & (SYN | ACK | RST | FIN)) == SYN;
    }
    tcp = AT(ctx, offset, sizeof(*tcp));
    if (!tcp || (tcp->flags & (SYN | ACK | RST | FIN)) != SYN)
        return 0;
    length = (tcp->offset >> 4) * 4;
    if (!is_cut && (length < sizeof(*tcp) || length > left))
        return 0;
    syn->sport = tcp->sport;
    syn->dport = tcp->dport;
    return 1;
}

#endif
