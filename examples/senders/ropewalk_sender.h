/*
 * Sends a front end's data to Ropewalk as generic fragments over TCP (docs/generic-fragment.md).
 *
 * One header, C99 or C++, only libc. Include it before other headers, or compile with -std=gnu99.
 *
 *     struct ropewalk_sender sender;
 *     if (ropewalk_open(&sender, "127.0.0.1", "5000", 1, ROPEWALK_HELLO_UTC, "telescope") < 0)
 *         perror("connect");
 *     ropewalk_send(&sender, event_number, ropewalk_utc_ns(), 0, payload, payload_length);
 *     ropewalk_flush(&sender);    before you wait for the next trigger
 *     ropewalk_close(&sender);
 *
 * Functions return 0, or -1 with errno set; after a failure of send or flush the connection is of no further use.
 * Fragments are collected in a buffer, because one system call per small fragment would be five times slower. While
 * Ropewalk is busy, send and flush wait: nothing is lost.
 */
#ifndef ROPEWALK_SENDER_H
#define ROPEWALK_SENDER_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define ROPEWALK_VERSION 1
#define ROPEWALK_HELLO_BYTES 64
#define ROPEWALK_HEADER_BYTES 32
#define ROPEWALK_MAX_NAME_BYTES 32
#define ROPEWALK_BUFFER_BYTES 65536

/* In the hello: timestamps count nanoseconds from 1970-01-01T00:00:00Z. */
#define ROPEWALK_HELLO_UTC 1u
/* In a fragment: the numbering of events starts again with this one. */
#define ROPEWALK_RESYNC 1u

struct ropewalk_sender {
    int socket;
    uint32_t source;
    size_t filled;
    unsigned char buffer[ROPEWALK_BUFFER_BYTES];
};

/* Writes the lowest `count` bytes of `value`, little-endian on every machine. */
static inline void ropewalk_put(unsigned char *to, uint64_t value, int count)
{
    int index;
    for (index = 0; index < count; index++)
        to[index] = (unsigned char)(value >> (8 * index));
}

/* Writes the 64 bytes that begin a connection. Of `name` (UTF-8), 32 bytes are used. */
static inline void ropewalk_put_hello(unsigned char *to, uint32_t source, uint16_t flags, const char *name)
{
    size_t length = strlen(name);
    memset(to, 0, ROPEWALK_HELLO_BYTES);
    memcpy(to, "RWHI", 4);
    ropewalk_put(to + 4, ROPEWALK_VERSION, 1);
    ropewalk_put(to + 6, flags, 2);
    ropewalk_put(to + 8, source, 4);
    memcpy(to + 16, name, length < ROPEWALK_MAX_NAME_BYTES ? length : ROPEWALK_MAX_NAME_BYTES);
}

/* Writes the 32 bytes in front of each payload. */
static inline void ropewalk_put_header(unsigned char *to, uint32_t source, uint16_t flags, uint64_t event_number,
                                       uint64_t timestamp_ns, uint32_t payload_length)
{
    memcpy(to, "RWFR", 4);
    ropewalk_put(to + 4, ROPEWALK_VERSION, 2);
    ropewalk_put(to + 6, flags, 2);
    ropewalk_put(to + 8, source, 4);
    ropewalk_put(to + 12, payload_length, 4);
    ropewalk_put(to + 16, event_number, 8);
    ropewalk_put(to + 24, timestamp_ns, 8);
}

/* Nanoseconds since 1970-01-01T00:00:00Z. */
static inline uint64_t ropewalk_utc_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sends collected data; waits while Ropewalk is busy. */
static inline int ropewalk_flush(struct ropewalk_sender *sender)
{
    size_t sent = 0;
    while (sent < sender->filled) {
        ssize_t count = send(sender->socket, sender->buffer + sent, sender->filled - sent, MSG_NOSIGNAL);
        if (count >= 0)
            sent += (size_t)count;
        else if (errno != EINTR)
            return -1;
    }
    sender->filled = 0;
    return 0;
}

static inline int ropewalk_append(struct ropewalk_sender *sender, const void *bytes, size_t length)
{
    const unsigned char *from = (const unsigned char *)bytes;
    while (length > 0) {
        size_t room = ROPEWALK_BUFFER_BYTES - sender->filled;
        size_t count = length < room ? length : room;
        memcpy(sender->buffer + sender->filled, from, count);
        sender->filled += count;
        from += count;
        length -= count;
        if (sender->filled == ROPEWALK_BUFFER_BYTES && ropewalk_flush(sender) < 0)
            return -1;
    }
    return 0;
}

/* Connects and says hello. `host` may be a name or an address, `port` a number as text. */
static inline int ropewalk_open(struct ropewalk_sender *sender, const char *host, const char *port, uint32_t source,
                                uint16_t hello_flags, const char *name)
{
    struct addrinfo hints, *addresses, *address;
    unsigned char hello[ROPEWALK_HELLO_BYTES];
    int failure = EHOSTUNREACH;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    sender->socket = -1;
    sender->source = source;
    sender->filled = 0;
    if (getaddrinfo(host, port, &hints, &addresses) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (address = addresses; address != NULL && sender->socket < 0; address = address->ai_next) {
        int one = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
        if (one >= 0 && connect(one, address->ai_addr, address->ai_addrlen) == 0) {
            sender->socket = one;
        } else {
            failure = errno;
            if (one >= 0)
                close(one);
        }
    }
    freeaddrinfo(addresses);
    if (sender->socket < 0) {
        errno = failure;
        return -1;
    }
    ropewalk_put_hello(hello, source, hello_flags, name);
    return ropewalk_append(sender, hello, sizeof hello);
}

/*
 * Sends the data of one event. Event numbers grow by one from trigger to trigger, the same in every front end;
 * a timestamp of 0 means that there is no clock; `flags` is 0 or ROPEWALK_RESYNC. The payload is copied.
 */
static inline int ropewalk_send(struct ropewalk_sender *sender, uint64_t event_number, uint64_t timestamp_ns,
                                uint16_t flags, const void *payload, uint32_t payload_length)
{
    unsigned char header[ROPEWALK_HEADER_BYTES];
    ropewalk_put_header(header, sender->source, flags, event_number, timestamp_ns, payload_length);
    if (ropewalk_append(sender, header, sizeof header) < 0)
        return -1;
    return ropewalk_append(sender, payload, payload_length);
}

/* Sends collected data and closes the connection. */
static inline int ropewalk_close(struct ropewalk_sender *sender)
{
    int flushed = ropewalk_flush(sender);
    int failure = errno;
    int closed = close(sender->socket);
    sender->socket = -1;
    if (flushed < 0) {
        errno = failure;
        return -1;
    }
    return closed;
}

#endif
