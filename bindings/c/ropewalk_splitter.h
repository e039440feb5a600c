/*
 * A splitter divides the frames of a board that contain several events or hits each (docs/splitters.md). C99 or C++; nothing to
 * link with.
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

/* What a piece belongs to. All pieces of a source have the kind that its configuration names (`keys`). */
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

/* A result of split in place of a number of pieces. */
#define ROPEWALK_MALFORMED (-1) /* this frame is invalid; the next one is not affected */

struct ropewalk_splitter {
    struct ropewalk_plugin plugin;
    /*
     * Creates the splitter of one source. `configuration` is the text of its key `configuration`, terminated by a zero.
     * Returns your state, which the other functions get, or NULL on failure; then write the reason, terminated by a zero, to
     * `error`, which has room for `capacity` bytes. May be NULL: then the state is NULL.
     */
    void *(*create)(const char *configuration, char *error, size_t capacity);
    /*
     * Writes the pieces of a complete frame in their order in it, at most `capacity`, and returns their number; they must not
     * overlap. Returns 0 if the frame has no event, and a negative number if it cannot be divided. The frame is valid during
     * the call and read-only.
     */
    int64_t (*split)(void *state, const uint8_t *frame, size_t length, struct ropewalk_piece *pieces, size_t capacity);
    /* Why the last split was negative: a text that is valid until the next call. May be NULL, and may return NULL. */
    const char *(*error)(void *state);
    /* Destroys the splitter. May be NULL. */
    void (*destroy)(void *state);
};

/*
 * Calls for one state never overlap, but may come from different threads. Several states may exist at the same time, one for each
 * source.
 */
#define ROPEWALK_SPLITTER_HEAD(name) \
    { ROPEWALK_PLUGIN_SPLITTER, ROPEWALK_SPLITTER_VERSION, sizeof(struct ropewalk_splitter), 0, name }

#ifdef __cplusplus
}
#endif

#endif
