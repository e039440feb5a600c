/* Picks the whole packets of some flows out of what a network card receives and gives them to the AF_XDP socket of their
 * queue. Everything else, fragments too, goes to the kernel as always.
 *
 * A map says what it is to pick. The maps, and the card's address, are 64-bit constants, which the loader replaces
 * (program.rs): so this is one section of instructions, without maps to be found by name and without anything to be
 * linked. It needs no header.
 *
 *     clang-14 -target bpf -O2 -Wall -Werror -c pick.c
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* linux/bpf.h */
struct xdp_md {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
enum { XDP_PASS = 2 };
static void *(*const bpf_map_lookup_elem)(u64 map, const void *key) = (void *)1;
static long (*const bpf_redirect_map)(u64 map, u64 key, u64 otherwise) = (void *)51;

/* Constants, by the numbers that the loader looks for. */
#define CONSTANT(number) ({ u64 value; asm volatile("%0 = " number " ll" : "=r"(value)); value; })
#define SOCKETS CONSTANT("0x52570000000001") /* the map of sockets, by queue */
#define PICKED CONSTANT("0x52570000000002")  /* the map of what is picked: see below */
#define MAC CONSTANT("0x52570000000003")     /* the card's address: six bytes as they stand in a frame */

#define UDP 17
#define BIG_ENDIAN_16(number) ((u16)((number) >> 8 | (number) << 8))

/* The queue where packets to an address are expected; those of a flow may be expected anywhere. */
#define ANY_QUEUE 0xFFFFFFFF

__attribute__((section("xdp"), used)) int pick(struct xdp_md *frame)
{
    u8 *begin = (u8 *)(u64)frame->data, *end = (u8 *)(u64)frame->data_end, *ip = begin + 14;

    if (begin + 14 > end)
        return XDP_PASS;
    u64 mac = (u64)*(u16 *)(begin + 4) << 32 | (u64)*(u16 *)(begin + 2) << 16 | *(u16 *)begin;
    u16 type = *(u16 *)(begin + 12);
    if (type == BIG_ENDIAN_16(0x8100)) {
        if (begin + 18 > end)
            return XDP_PASS;
        /* A tag without a network carries a priority alone. */
        if (*(u16 *)(begin + 14) & BIG_ENDIAN_16(0x0FFF))
            return XDP_PASS;
        type = *(u16 *)(begin + 16);
        ip = begin + 18;
    }
    if (type != BIG_ENDIAN_16(0x0800) || mac != MAC || ip + 20 > end)
        return XDP_PASS;
    if (ip[0] >> 4 != 4 || *(u16 *)(ip + 6) & BIG_ENDIAN_16(0x3FFF))
        return XDP_PASS;
    /* Eight bytes: the IPv4 address and UDP's port (0 for other protocols) as they stand in a packet, the protocol, 0. */
    u64 to = (u64)ip[9] << 48 | (u64)*(u16 *)(ip + 18) << 16 | *(u16 *)(ip + 16);
    if (ip[9] == UDP) {
        u8 *udp = ip + (ip[0] & 15) * 4;
        if (udp + 4 > end)
            return XDP_PASS;
        to |= (u64)*(u16 *)(udp + 2) << 32;
    }
    u32 *queue = bpf_map_lookup_elem(PICKED, &to);
    /* What comes in at another queue than its own takes the long way, through the kernel, to whom it is for. */
    if (!queue || (*queue != ANY_QUEUE && *queue != frame->rx_queue_index))
        return XDP_PASS;
    return bpf_redirect_map(SOCKETS, frame->rx_queue_index, XDP_PASS);
}
