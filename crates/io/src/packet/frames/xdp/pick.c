/* Picks the whole packets of one flow out of what a network card receives and gives them to the AF_XDP socket of their
 * queue. Everything else, fragments too, goes to the kernel as always.
 *
 * What it is to pick stands in 64-bit constants, which the loader replaces (program.rs): so this is one section of
 * instructions, without maps to be found by name and without anything to be linked. It needs no header.
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
static long (*const bpf_redirect_map)(u64 map, u64 key, u64 otherwise) = (void *)51;

/* Constants, by the numbers that the loader looks for. */
#define CONSTANT(number) ({ u64 value; asm volatile("%0 = " number " ll" : "=r"(value)); value; })
#define SOCKETS CONSTANT("0x52570000000001")  /* the map of sockets, by queue */
#define MAC CONSTANT("0x52570000000002")      /* the card's address: six bytes as they stand in a frame */
#define ADDRESS CONSTANT("0x52570000000003")  /* its IPv4 address: four bytes as they stand in a packet */
#define PROTOCOL CONSTANT("0x52570000000004") /* the protocol's number */
#define PORT CONSTANT("0x52570000000005")     /* UDP's port as it stands in a datagram, 0 for other protocols */

#define BIG_ENDIAN_16(number) ((u16)((number) >> 8 | (number) << 8))

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
    if (ip[0] >> 4 != 4 || ip[9] != PROTOCOL)
        return XDP_PASS;
    u64 to = (u64)*(u16 *)(ip + 18) << 16 | *(u16 *)(ip + 16);
    if (to != ADDRESS || *(u16 *)(ip + 6) & BIG_ENDIAN_16(0x3FFF))
        return XDP_PASS;
    u64 port = PORT;
    if (port) {
        u8 *udp = ip + (ip[0] & 15) * 4;
        if (udp + 4 > end || *(u16 *)(udp + 2) != port)
            return XDP_PASS;
    }
    return bpf_redirect_map(SOCKETS, frame->rx_queue_index, XDP_PASS);
}
