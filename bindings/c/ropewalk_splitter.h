/*
 * A splitter: it says into which pieces the frames of a board fall apart that hold several events or hits each
 * (docs/splitters.md). C99 or C++; nothing to link with.
 *
 *     static int64_t split(void *state, const uint8_t *frame, size_t length,
 *                          struct ropewalk_piece *pieces, size_t capacity) { ... }
 *
 *     static const struct ropewalk_splitter splitter = {
 *         ROPEWALK_SPLITTER_HEAD("my board 1.0"), NULL, split, NULL, NULL};
 *
 *     const struct ropewalk_plugin *ropewalk_plugin(void) { return &splitter.plugin; }
 *
 *     cc -shared -fPIC -I bindings/c -o my_board.so my_board.c
 */
#ifndef ROPEWALK_SPLITTER_H
#define ROPEWALK_SPLITTER_H

#include "ropewalk_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROPEWALK_SPLITTER_VERSION 1

/* What a piece belongs to. All pieces of a source are of one sort, which its configuration names (`keys`). */
enum ropewalk_piece_kind {
    ROPEWALK_EVENT = 0, /* an event, by its number as the board counts */
    ROPEWALK_TIME = 1   /* a time, in ticks of the board's clock */
};

/* The part of a frame that belongs to one event. */
struct ropewalk_piece {
    uint64_t key;    /* the event's number, or the time */
    uint64_t offset; /* where in the frame it begins, in bytes */
    uint64_t length; /* in bytes; 0 is a piece without contents */
    uint32_t kind;   /* enum ropewalk_piece_kind */
    uint32_t reserved;
};

/* What split may return in place of a number of pieces. */
#define ROPEWALK_MALFORMED (-1) /* this frame makes no sense; the next one is looked at afresh */

struct ropewalk_splitter {
    struct ropewalk_plugin plugin;
    /*
     * Begins to divide the frames of one source. `configuration` is the text of its key `configuration`, ended by a zero.
     * Returns your state, which the other functions get. NULL where it cannot be done; then write a text that says why, ended
     * by a zero, to `error`, which has room for `capacity` bytes. May be NULL: then the state is NULL.
     */
    void *(*create)(const char *configuration, char *error, size_t capacity);
    /*
     * Writes the pieces of a whole frame, in the order in which they lie there, at most `capacity` of them, and returns how
     * many; they must not overlap. 0 where no event is in it. Negative where it cannot be divided. The frame is there
     * during the call and cannot be written to.
     */
    int64_t (*split)(void *state, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity);
    /* Why the last split was negative: a text that is there until the next call. May be NULL, and may return NULL. */
    const char *(*error)(void *state);
    /* Ends it. May be NULL. */
    void (*destroy)(void *state);
};

/*
 * Calls for one state come one after the other, but not always from the same thread. Several states may be there at once, one for
 * each source.
 */
#define ROPEWALK_SPLITTER_HEAD(name) \
    { ROPEWALK_PLUGIN_SPLITTER, ROPEWALK_SPLITTER_VERSION, sizeof(struct ropewalk_splitter), 0, name }

#ifdef __cplusplus
}
#endif

#endif
