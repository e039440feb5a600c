/*
 * An event and a decision, for plug-ins (ropewalk_filter.h) and programs (ropewalk_client.h). C99 or C++.
 */
#ifndef ROPEWALK_EVENT_H
#define ROPEWALK_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Contiguous bytes. */
struct ropewalk_bytes {
    const uint8_t *start;
    size_t length;
};

/* Properties of a fragment. */
enum ropewalk_fragment_flags {
    ROPEWALK_CRC_CHECKED = 1 << 0,
    ROPEWALK_CRC_ERROR = 1 << 1,
    ROPEWALK_MALFORMED_CONTENTS = 1 << 2,
    ROPEWALK_WRONG_SOURCE = 1 << 3,
    ROPEWALK_LENGTH_MISMATCH = 1 << 4,
    ROPEWALK_BUNCH_CROSSING_MISMATCH = 1 << 5,
    ROPEWALK_DISPLACED = 1 << 6,
    ROPEWALK_STATUS_ERROR = 1 << 7,
    ROPEWALK_FRAMES_MISSING = 1 << 8,
    ROPEWALK_HAS_BUNCH_CROSSING = 1 << 16,
    ROPEWALK_HAS_TIME = 1 << 17,
    ROPEWALK_BUSY = 1 << 18
};

/* One source's data for the event. */
struct ropewalk_fragment {
    uint32_t source;         /* its id */
    uint32_t length;         /* bytes of all pieces */
    uint32_t flags;          /* enum ropewalk_fragment_flags; later versions may set others */
    uint16_t bunch_crossing; /* if the flags say that there is one */
    uint16_t trigger_type;   /* from the source; 0 if it has none */
    uint64_t raw_id;         /* the source's own event counter */
    uint64_t time;           /* the source's own time stamp in its own ticks, if the flags say that there is one */
    const struct ropewalk_bytes *pieces; /* the bytes in order, in one or several places */
    size_t piece_count;                  /* 0 if the fragment has no bytes */
};

enum ropewalk_event_flags {
    ROPEWALK_INCOMPLETE = 1 << 0, /* a required source is missing */
    ROPEWALK_DOUBTFUL = 1 << 1    /* a fragment of it has an error, which its flags name */
};

/* An event. It and its bytes are valid until it is decided, and read-only. */
struct ropewalk_event {
    uint32_t size;   /* of this struct, in bytes; a later version may append fields to it */
    uint32_t run;    /* the run's number */
    uint64_t key;    /* the resync count in the upper 16 bits, its number in the lower 48 */
    uint64_t number; /* its number */
    uint32_t resync; /* how often the run was resynchronised before it */
    uint32_t attempt; /* how often it was assigned to a builder unit, 1 for the first time */
    uint32_t flags;   /* enum ropewalk_event_flags; later versions may set others */
    uint32_t trigger_type;
    const struct ropewalk_fragment *fragments; /* in the order in which the sources are configured */
    size_t fragment_count;
};

/* Maximum number of bytes that a filter can store with an event. */
#define ROPEWALK_RESULT_CAPACITY 65536

/* Maximum number of values that a filter can fill into histograms for one event. */
#define ROPEWALK_FILL_CAPACITY 256

/* A value for a histogram. */
struct ropewalk_fill {
    uint32_t histogram; /* the result of its declaration */
    uint32_t reserved;  /* zero */
    double value;
};

/* A decision on an event. The filter gets it with all fields zero, except `result` and `fills`, which point to their room. */
struct ropewalk_decision {
    uint32_t size;          /* of this struct, in bytes; a later version may append fields to it */
    uint32_t accept;        /* 0: it is rejected */
    uint64_t bits[2];       /* the triggers that it passed: trigger n is bit n % 64 of bits[n / 64] */
    uint8_t *result;        /* room for bytes to store with the event, as one more fragment */
    uint32_t capacity;      /* size of that room: ROPEWALK_RESULT_CAPACITY */
    uint32_t result_length; /* bytes written there; 0 stores nothing */
    struct ropewalk_fill *fills; /* room for values of histograms: see ropewalk_fill */
    uint32_t fill_capacity;      /* size of that room: ROPEWALK_FILL_CAPACITY */
    uint32_t fill_count;         /* number of fills; those beyond the room are counted and dropped */
};

/* Records that the event passed this trigger, 0 to 127. */
static inline void ropewalk_pass(struct ropewalk_decision *decision, unsigned trigger) {
    if (trigger < 128)
        decision->bits[trigger / 64] |= (uint64_t)1 << (trigger % 64);
}

/*
 * Fills a value into a histogram when the decision on the event counts: an abandoned attempt leaves no trace. `histogram` is the
 * result of its declaration; nothing happens if it was refused, or the host has no histograms.
 */
static inline void ropewalk_fill(struct ropewalk_decision *decision, int histogram, double value) {
    if (histogram < 0 || decision->size < sizeof *decision)
        return;
    if (decision->fill_count < decision->fill_capacity) {
        struct ropewalk_fill *fill = &decision->fills[decision->fill_count];
        fill->histogram = (uint32_t)histogram;
        fill->reserved = 0;
        fill->value = value;
    }
    decision->fill_count++;
}

/* The fragment of a source; NULL if the event has none. */
static inline const struct ropewalk_fragment *ropewalk_fragment_of(const struct ropewalk_event *event, uint32_t source) {
    size_t index;
    for (index = 0; index < event->fragment_count; index++)
        if (event->fragments[index].source == source)
            return &event->fragments[index];
    return NULL;
}

/*
 * Copies the bytes of a fragment from `offset` on to `to`, at most `capacity`. Returns their number.
 */
static inline size_t ropewalk_copy(const struct ropewalk_fragment *fragment, size_t offset, void *to, size_t capacity) {
    size_t index, done = 0;
    for (index = 0; index < fragment->piece_count && done < capacity; index++) {
        const struct ropewalk_bytes *piece = &fragment->pieces[index];
        size_t length;
        if (offset >= piece->length) {
            offset -= piece->length;
            continue;
        }
        length = piece->length - offset;
        if (length > capacity - done)
            length = capacity - done;
        memcpy((uint8_t *)to + done, piece->start + offset, length);
        done += length;
        offset = 0;
    }
    return done;
}

/*
 * The contiguous bytes of a fragment: in place if they are contiguous, otherwise copied to `room`, which has `capacity` bytes.
 * NULL if they do not fit there, and for a fragment without bytes.
 */
static inline const uint8_t *ropewalk_contiguous(const struct ropewalk_fragment *fragment, void *room, size_t capacity) {
    if (fragment->piece_count == 0)
        return NULL;
    if (fragment->piece_count == 1)
        return fragment->pieces[0].start;
    if (fragment->length > capacity)
        return NULL;
    ropewalk_copy(fragment, 0, room, capacity);
    return (const uint8_t *)room;
}

#ifdef __cplusplus
}
#endif

#endif
