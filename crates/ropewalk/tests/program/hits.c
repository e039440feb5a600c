/*
 * A splitter of a board without triggers: each frame holds hits, and of each the time at which it was.
 *
 *     byte 0    "HT"         what all frames begin with
 *          2    uint16       how many hits follow
 *          4    uint32       the time of the first one, in ticks of 25 ns
 *          8    uint32       bytes of the frame
 *     then for each hit
 *          0    uint32       its time
 *          4    uint16       bytes of its data
 *          6    ...          its data
 */
#include "ropewalk_splitter.h"

#include <string.h>

static int64_t split(void *state, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity) {
    uint16_t hits, bytes;
    uint32_t time;
    size_t at = 12;
    (void)state;
    memcpy(&hits, frame + 2, 2);
    for (size_t hit = 0; hit < hits; hit++) {
        if (hit == capacity || length - at < 6)
            return ROPEWALK_MALFORMED;
        memcpy(&time, frame + at, 4);
        memcpy(&bytes, frame + at + 4, 2);
        if (length - at - 6 < bytes)
            return ROPEWALK_MALFORMED;
        pieces[hit] = (struct ropewalk_piece){time, at + 6, bytes, ROPEWALK_TIME, 0};
        at += 6 + bytes;
    }
    return hits;
}

static const struct ropewalk_splitter splitter = {ROPEWALK_SPLITTER_HEAD("hits 1.0"), NULL, split, NULL, NULL};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &splitter.plugin; }
