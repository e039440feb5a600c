/*
 * A splitter for a board that packs several triggers into a datagram (docs/splitters.md):
 *
 *     byte 0    "TB"         the beginning of all datagrams
 *          2    uint16       number of triggers that follow
 *     then for each trigger
 *          0    uint32       its number
 *          4    uint16       bytes of its hits
 *          6    ...          its hits
 *
 * All numbers are little-endian. Build it beside the configuration:
 *
 *     cc -O2 -shared -fPIC -I bindings/c -o examples/splitter/trigger_board.so examples/splitter/trigger_board.c
 */
#include "ropewalk_splitter.h"

enum { HEADER = 4, TRIGGER_HEADER = 6 };

static uint32_t number(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

static int64_t split(void *state, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity) {
    (void)state;
    if (length < HEADER || frame[0] != 'T' || frame[1] != 'B')
        return ROPEWALK_MALFORMED;
    size_t triggers = number(frame + 2, 2), at = HEADER;
    if (triggers > capacity)
        return ROPEWALK_MALFORMED;
    for (size_t trigger = 0; trigger < triggers; trigger++) {
        if (length - at < TRIGGER_HEADER)
            return ROPEWALK_MALFORMED;
        size_t hits = number(frame + at + 4, 2);
        if (length - at - TRIGGER_HEADER < hits)
            return ROPEWALK_MALFORMED;
        pieces[trigger] = (struct ropewalk_piece){
            .key = number(frame + at, 4), .offset = at + TRIGGER_HEADER, .length = hits, .kind = ROPEWALK_EVENT};
        at += TRIGGER_HEADER + hits;
    }
    return (int64_t)triggers;
}

static const struct ropewalk_splitter splitter = {ROPEWALK_SPLITTER_HEAD("trigger board 1.0"), NULL, split, NULL, NULL};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &splitter.plugin; }
