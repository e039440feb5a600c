/*
 * A front end under Ropewalk's run control: configured, started and stopped by it (docs/front-end-control.md).
 *
 * This header and ropewalk_source.c; C99 or C++, nothing but libc, no threads: everything happens inside
 * ropewalk_source_poll and ropewalk_source_send.
 *
 *     struct ropewalk_source_callbacks callbacks = { my_configure, my_start, NULL, NULL, my_stop, NULL, NULL };
 *     struct ropewalk_source *source =
 *         ropewalk_source_open("127.0.0.1:5100", 2, "telescope", ROPEWALK_CLOCK_UTC, "firmware 3.1", &callbacks, &mine);
 *     while (ropewalk_source_poll(source, 10) == 0) {
 *         while (read_the_board(&event, &payload, &length))
 *             ropewalk_source_send(source, event, ropewalk_source_utc_ns(), payload, length);
 *         ropewalk_source_report(source, "temperature/1", 31.5, "C");
 *     }
 *
 * poll speaks with run control, calls it again when the connection was lost, and sends what has gathered; call it often.
 */
#ifndef ROPEWALK_SOURCE_H
#define ROPEWALK_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An event number that stands for "unknown". */
#define ROPEWALK_UNKNOWN UINT64_MAX

enum ropewalk_clock { ROPEWALK_CLOCK_NONE = 0, ROPEWALK_CLOCK_UTC = 1, ROPEWALK_CLOCK_OWN = 2 };

/* How far the front end is in a run. */
enum ropewalk_stage {
    ROPEWALK_IDLE = 0,
    ROPEWALK_READY = 1,
    ROPEWALK_STARTED = 2,
    ROPEWALK_TRIGGERING = 3, /* the trigger source alone */
    ROPEWALK_VETOED = 4,
    ROPEWALK_STOPPED = 5
};

/*
 * What you may provide; any of them may be NULL. Each returns NULL, or a text that says why it failed, which run control
 * shows. They run inside ropewalk_source_poll.
 */
struct ropewalk_source_callbacks {
    /* Get ready with these settings: your [source.settings] as TOML, ended by a zero. */
    const char *(*configure)(void *mine, const char *settings);
    /* Take data from event `first` on; `last` is ROPEWALK_UNKNOWN where nobody knows it yet. */
    const char *(*start)(void *mine, uint32_t run, uint64_t first, uint64_t last);
    /* The trigger source alone: ropewalk_source_trigger gives numbers from now on. */
    const char *(*enable)(void *mine);
    /* The trigger source alone: it gives none any more. */
    const char *(*inhibit)(void *mine);
    /* The run ends with event `last` (ROPEWALK_UNKNOWN: where you are). What is left may be sent here or later: the library
     * answers when the fragment of event `last` has left, or when you call ropewalk_source_done. */
    const char *(*stop)(void *mine, uint32_t run, uint64_t last);
    /* The trigger source alone: the run is paused. Without it the library does what is needed: ropewalk_source_trigger gives
     * no number, and counts the triggers that come as vetoed: "paused". Provide it where hardware has to hold triggers. */
    const char *(*hold)(void *mine);
    /* The trigger source alone: the pause is over, and ropewalk_source_trigger gives the next number. After a pause that ends
     * with the run's stop there is none, but inhibit. */
    const char *(*release)(void *mine);
};

struct ropewalk_source;

/* What the front end has done in this run. */
struct ropewalk_source_counts {
    uint64_t sent;             /* fragments */
    uint64_t sent_bytes;       /* their bytes, heads included */
    uint64_t waited_ns;        /* how long send waited because nobody took the data */
    uint64_t reports_left_out; /* reports that could not be made, since the beginning */
};

/*
 * A front end of this id, which calls run control at `run_control` (HOST:PORT) as soon as it is polled. `versions` says
 * which firmware and program this is, for people. The callbacks are copied. NULL where memory or the address is missing
 * (errno says which).
 */
struct ropewalk_source *ropewalk_source_open(const char *run_control, uint32_t source, const char *name,
                                             enum ropewalk_clock clock, const char *versions,
                                             const struct ropewalk_source_callbacks *callbacks, void *mine);

/* Speaks with run control and sends what has gathered; sleeps at most so long while there is nothing to do. Returns 0. */
int ropewalk_source_poll(struct ropewalk_source *source, int timeout_ms);

/*
 * Sends the data of one event, in the order of event numbers; the payload is copied. Where Ropewalk is busy it waits.
 * Returns 0, or -1 with errno: ENOTCONN where the readout unit is gone and run control wants something; EMSGSIZE.
 */
int ropewalk_source_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                         uint32_t length);

/* The same without waiting: 0, or -1 with errno EAGAIN where there is no room now. */
int ropewalk_source_try_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                             uint32_t length);

/* The trigger source alone: the number of the event that this trigger makes, or ROPEWALK_UNKNOWN where none may come. */
uint64_t ropewalk_source_trigger(struct ropewalk_source *source);

/* The trigger source alone: whether the run is paused, so that no trigger makes an event. */
int ropewalk_source_is_held(const struct ropewalk_source *source);

/* The trigger source alone: there was a trigger, and this is why it makes no event. At most 32 causes of 63 bytes. */
void ropewalk_source_veto(struct ropewalk_source *source, const char *cause);

/* After a stop: nothing more will be sent, although the fragment of the last event was not. */
void ropewalk_source_done(struct ropewalk_source *source);

/* Reports a slow reading, read now; -1 (errno ENOTCONN or EAGAIN) where run control is not there or does not keep up. */
int ropewalk_source_report(struct ropewalk_source *source, const char *name, double value, const char *unit);

/* Sets one of your own numbers, which stand in every status. At most 32 names of 63 bytes. */
void ropewalk_source_count(struct ropewalk_source *source, const char *name, uint64_t value);

/* What you say of yourself; copied, at most 255 bytes. */
void ropewalk_source_say(struct ropewalk_source *source, const char *text);

enum ropewalk_stage ropewalk_source_stage(const struct ropewalk_source *source);

/* The number of the run; 0 before the first. */
uint32_t ropewalk_source_run(const struct ropewalk_source *source);

struct ropewalk_source_counts ropewalk_source_counts(const struct ropewalk_source *source);

/* Ends both connections and frees everything. */
void ropewalk_source_close(struct ropewalk_source *source);

/* Nanoseconds since 1970-01-01T00:00:00Z. */
uint64_t ropewalk_source_utc_ns(void);

#ifdef __cplusplus
}
#endif

#endif
