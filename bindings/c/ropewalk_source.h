/*
 * A front end under Ropewalk's run control: configured, started and stopped by it (docs/front-end-control.md).
 *
 * This header and ropewalk_source.c; C99 or C++, only libc, no threads: all work happens in
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
 * poll communicates with run control, reconnects after a lost connection, and sends collected data; call it often.
 */
#ifndef ROPEWALK_SOURCE_H
#define ROPEWALK_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The event number for "unknown". */
#define ROPEWALK_UNKNOWN UINT64_MAX

enum ropewalk_clock { ROPEWALK_CLOCK_NONE = 0, ROPEWALK_CLOCK_UTC = 1, ROPEWALK_CLOCK_OWN = 2 };

/* How far the front end is in a run. */
enum ropewalk_stage {
    ROPEWALK_IDLE = 0,
    ROPEWALK_READY = 1,
    ROPEWALK_STARTED = 2,
    ROPEWALK_TRIGGERING = 3, /* only the trigger source */
    ROPEWALK_VETOED = 4,
    ROPEWALK_STOPPED = 5
};

/*
 * Your callbacks; any of them may be NULL. Each returns NULL, or the reason of a failure as text, which run control
 * shows. They run in ropewalk_source_poll.
 */
struct ropewalk_source_callbacks {
    /* Get ready with these settings: your [source.settings] as TOML, terminated by a zero. */
    const char *(*configure)(void *mine, const char *settings);
    /* Take data from event `first` on; `last` is ROPEWALK_UNKNOWN if it is not known yet. */
    const char *(*start)(void *mine, uint32_t run, uint64_t first, uint64_t last);
    /* Only the trigger source: ropewalk_source_trigger returns numbers from now on. */
    const char *(*enable)(void *mine);
    /* Only the trigger source: it returns no more numbers. */
    const char *(*inhibit)(void *mine);
    /* The run ends with event `last` (ROPEWALK_UNKNOWN: at the present event). Send the remaining data here or later: the
     * library answers when the fragment of event `last` was sent, or when you call ropewalk_source_done. */
    const char *(*stop)(void *mine, uint32_t run, uint64_t last);
    /* Only the trigger source: the run is paused. Without this callback, ropewalk_source_trigger returns no number and counts
     * triggers as vetoed: "paused". Provide it if hardware has to hold triggers. */
    const char *(*hold)(void *mine);
    /* Only the trigger source: the pause is over, and ropewalk_source_trigger returns the next number. If a pause ends with
     * the stop of the run, inhibit is called instead. */
    const char *(*release)(void *mine);
};

struct ropewalk_source;

/* Counts of this run. */
struct ropewalk_source_counts {
    uint64_t sent;             /* fragments */
    uint64_t sent_bytes;       /* their bytes, headers included */
    uint64_t waited_ns;        /* time that send waited for Ropewalk to take data */
    uint64_t reports_left_out; /* reports that were dropped, since the beginning */
};

/*
 * Creates a front end with this id, which connects to run control at `run_control` (HOST:PORT) when it is polled. `versions`
 * describes firmware and program, for display. The callbacks are copied. Returns NULL if memory or the address is missing (see
 * errno).
 */
struct ropewalk_source *ropewalk_source_open(const char *run_control, uint32_t source, const char *name,
                                             enum ropewalk_clock clock, const char *versions,
                                             const struct ropewalk_source_callbacks *callbacks, void *mine);

/* Communicates with run control and sends collected data; sleeps at most this long if there is no work. Returns 0. */
int ropewalk_source_poll(struct ropewalk_source *source, int timeout_ms);

/*
 * Sends the data of one event, in the order of event numbers; the payload is copied. Waits while Ropewalk is busy.
 * Returns 0, or -1 with errno: ENOTCONN if the readout unit is gone and run control has sent a command; EMSGSIZE.
 */
int ropewalk_source_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                         uint32_t length);

/* The same without waiting: returns 0, or -1 with errno EAGAIN if there is no room. */
int ropewalk_source_try_send(struct ropewalk_source *source, uint64_t event, uint64_t timestamp_ns, const void *payload,
                             uint32_t length);

/* Only the trigger source: the number of the event of this trigger, or ROPEWALK_UNKNOWN if triggers are not accepted. */
uint64_t ropewalk_source_trigger(struct ropewalk_source *source);

/* Only the trigger source: whether the run is paused, so that no trigger makes an event. */
int ropewalk_source_is_held(const struct ropewalk_source *source);

/* Only the trigger source: counts a trigger that makes no event, with the cause. At most 32 causes of 63 bytes. */
void ropewalk_source_veto(struct ropewalk_source *source, const char *cause);

/* After a stop: no more data will be sent, even if the fragment of the last event was not. */
void ropewalk_source_done(struct ropewalk_source *source);

/* Reports a slow reading, read now; -1 (errno ENOTCONN or EAGAIN) if run control is not connected or too slow. */
int ropewalk_source_report(struct ropewalk_source *source, const char *name, double value, const char *unit);

/* Sets one of your own counters, which every status contains. At most 32 names of 63 bytes. */
void ropewalk_source_count(struct ropewalk_source *source, const char *name, uint64_t value);

/* Your own status text; copied, at most 255 bytes. */
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
