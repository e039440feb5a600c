/*
 * The trigger cable of these examples: for each trigger the number of its event and its time (UTC, ns), 8 bytes each,
 * little-endian, over TCP. With real hardware this is a wire and a counter on each board.
 */
#ifndef LINE_H
#define LINE_H

#include <stdint.h>

#define TRIGGER_BYTES 16

static inline void put_number(unsigned char *to, uint64_t value)
{
    int index;
    for (index = 0; index < 8; index++)
        to[index] = (unsigned char)(value >> (8 * index));
}

static inline uint64_t number_at(const unsigned char *from)
{
    uint64_t value = 0;
    int index;
    for (index = 7; index >= 0; index--)
        value = value << 8 | from[index];
    return value;
}

#endif
