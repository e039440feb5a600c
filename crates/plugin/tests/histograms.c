/*
 * A filter that fills histograms: as often as the first byte of the event says, once more into one that was refused, and into one
 * that it never declared.
 */
#include "ropewalk_filter.h"

#include <stdlib.h>

struct state { const struct ropewalk_host *host; int size, time, late; };

static void *create(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity) {
    struct state *state = calloc(1, sizeof *state);
    char name[] = "0";
    int refused = 0;
    (void)error, (void)capacity;
    state->host = host;
    state->size = ropewalk_histogram(host, "size", 10, 0, 10);
    state->time = ropewalk_histogram(host, "time", 5, -1, 1);
    refused += ropewalk_histogram(host, "size", 11, 0, 10) < 0;
    refused += ropewalk_histogram(host, "none", 0, 0, 10) < 0;
    refused += ropewalk_histogram(host, "backwards", 1, 1, 0) < 0;
    refused += host->histogram(host, NULL, 1, 0, 1) < 0;
    if (refused != 4 || ropewalk_histogram(host, "size", 10, 0, 10) != state->size)
        abort();
    if (strcmp(configuration, "many") == 0)
        for (; name[0] < '0' + 70; name[0]++)
            if ((ropewalk_histogram(host, name, 1, 0, 1) < 0) != (name[0] >= '0' + 62))
                abort();
    return state;
}

static void begin_run(void *mine, uint32_t run) {
    struct state *state = mine;
    (void)run;
    state->late = ropewalk_histogram(state->host, "late", 1, 0, 1);
}

static int process(void *mine, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    const struct state *state = mine;
    unsigned count = event->fragments[0].pieces[0].start[0], one;
    decision->accept = 1;
    for (one = 0; one < count; one++)
        ropewalk_fill(decision, state->size, one);
    if (count < 200)
        ropewalk_fill(decision, state->time, 0.5);
    else
        for (; one < 300; one++)
            ropewalk_fill(decision, state->time, 2);
    ropewalk_fill(decision, state->late, 1);
    if (count == 7)
        ropewalk_fill(decision, 99, 1);
    decision->result[0] = 'r';
    decision->result_length = 1;
    return count == 13 ? -1 : 0;
}

static const struct ropewalk_filter filter = {
    ROPEWALK_FILTER_HEAD("histograms 1.0"), create, begin_run, process, NULL, NULL, free};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
