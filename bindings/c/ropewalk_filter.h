/*
 * A filter: it decides which events are kept, and which triggers they passed (docs/filters.md). C99 or C++; nothing to link
 * with.
 *
 *     static int process(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
 *         decision->accept = event->fragment_count > 3;
 *         return 0;
 *     }
 *
 *     static const struct ropewalk_filter filter = {
 *         ROPEWALK_FILTER_HEAD("my filter 1.0"), NULL, NULL, process, NULL, NULL, NULL};
 *
 *     const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
 *
 *     cc -shared -fPIC -I bindings/c -o my_filter.so my_filter.c
 */
#ifndef ROPEWALK_FILTER_H
#define ROPEWALK_FILTER_H

#include "ropewalk_event.h"
#include "ropewalk_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROPEWALK_FILTER_VERSION 1

/* Functions of the host for filters. Valid as long as the filter. */
struct ropewalk_host {
    uint32_t size; /* of this struct, in bytes; a later version may append functions to it */
    uint32_t reserved;
    /*
     * Declares a histogram: bins of equal width from `low` on up to `high`. Its name has 1 to 64 bytes, and it has at most 4,096
     * bins; a filter has at most 64 of them. Call it only in `create`, in the thread that called that. Returns the number for
     * ropewalk_fill; negative if the histogram is refused. A second declaration with the same name and bins returns the first
     * one.
     */
    int (*histogram)(const struct ropewalk_host *host, const char *name, uint32_t bins, double low, double high);
};

/* Declares a histogram if the host supports them; otherwise negative. Filling a negative one has no effect. */
static inline int ropewalk_histogram(const struct ropewalk_host *host, const char *name, uint32_t bins, double low,
                                     double high) {
    return host->size >= sizeof *host ? host->histogram(host, name, bins, low, high) : -1;
}

struct ropewalk_filter {
    struct ropewalk_plugin plugin;
    /*
     * Creates the filter. `configuration` is the text of its key `configuration`, terminated by a zero. Returns your state,
     * which the other functions get, or NULL on failure; then write the reason, terminated by a zero, to `error`, which has
     * room for `capacity` bytes. May be NULL: then the state is NULL.
     */
    void *(*create)(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity);
    /* The events of this run follow. May be NULL. */
    void (*begin_run)(void *state, uint32_t run);
    /*
     * Decides on an event: fills in `decision`, which rejects it by default. Returns 0, or a negative number if it cannot
     * decide: then `decision` is ignored, and the event counts as one on which the filter failed.
     */
    int (*process)(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision);
    /* No more events of the run follow. May be NULL; a filter whose process is killed during a run does not get this call. */
    void (*end_run)(void *state);
    /* Why the last call of process was negative: a text that is valid until the next call. May be NULL, and may return NULL. */
    const char *(*error)(void *state);
    /* Destroys the filter. May be NULL. */
    void (*destroy)(void *state);
};

/* Calls for one state never overlap, but may come from different threads. Several states may exist at the same time. */
#define ROPEWALK_FILTER_HEAD(name) \
    { ROPEWALK_PLUGIN_FILTER, ROPEWALK_FILTER_VERSION, sizeof(struct ropewalk_filter), 0, name }

#ifdef __cplusplus
}
#endif

#endif
