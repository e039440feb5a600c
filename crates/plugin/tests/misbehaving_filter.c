/*
 * Filters that do what they should not, one after the other, as the first bytes of the events or the configuration tell them.
 * What is built is chosen by macros: VERSION, SIZE, KIND, NO_PROCESS, NO_TABLE.
 */
#include "ropewalk_filter.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION ROPEWALK_FILTER_VERSION
#endif
#ifndef SIZE
#define SIZE sizeof(struct ropewalk_filter)
#endif
#ifndef KIND
#define KIND ROPEWALK_PLUGIN_FILTER
#endif

struct state {
    uint32_t run, runs_ended;
    uint64_t events;
};

static void *create(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity) {
    if (host->size < sizeof *host || strcmp(configuration, "crash") == 0)
        abort();
    if (strcmp(configuration, "refuse") == 0) {
        snprintf(error, capacity, "it wants to hear something else than \"%s\"", configuration);
        return NULL;
    }
    if (strcmp(configuration, "hang") == 0)
        for (;;)
            pause();
    return calloc(1, sizeof(struct state));
}

static void begin_run(void *mine, uint32_t run) {
    struct state *state = mine;
    state->run = run;
}

static void end_run(void *mine) {
    struct state *state = mine;
    state->runs_ended++;
}

/* All that is known of the event but its bytes, and a checksum (FNV-1a) of those. */
static uint64_t checksum(const struct ropewalk_event *event) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t f = 0; f < event->fragment_count; f++)
        for (size_t p = 0; p < event->fragments[f].piece_count; p++)
            for (size_t i = 0; i < event->fragments[f].pieces[p].length; i++)
                sum = (sum ^ event->fragments[f].pieces[p].start[i]) * 0x100000001b3u;
    return sum;
}

static void tell(const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    char *text = (char *)decision->result;
    int length = snprintf(text, decision->capacity, "run %u key %llu number %llu resync %u attempt %u flags %u type %u",
                          event->run, (unsigned long long)event->key, (unsigned long long)event->number, event->resync,
                          event->attempt, event->flags, event->trigger_type);
    for (size_t f = 0; f < event->fragment_count; f++) {
        const struct ropewalk_fragment *fragment = &event->fragments[f];
        uint8_t room[4];
        size_t copied = ropewalk_copy(fragment, 1, room, sizeof room);
        length += snprintf(text + length, decision->capacity - length, "; %u: %u bytes %x in %zu, %x %u %u %llu %llu",
                           fragment->source, fragment->length, copied > 0 ? room[copied - 1] : 0, fragment->piece_count,
                           fragment->flags, fragment->bunch_crossing, fragment->trigger_type,
                           (unsigned long long)fragment->raw_id, (unsigned long long)fragment->time);
    }
    decision->result_length = (uint32_t)length;
}

/* Which process this is, and where each piece of the event lies in it. */
static void tell_places(const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    char *text = (char *)decision->result;
    int length = snprintf(text, decision->capacity, "%d", (int)getpid());
    for (size_t f = 0; f < event->fragment_count; f++)
        for (size_t p = 0; p < event->fragments[f].piece_count; p++)
            length += snprintf(text + length, decision->capacity - length, " %llx",
                               (unsigned long long)(uintptr_t)event->fragments[f].pieces[p].start);
    decision->result_length = (uint32_t)length;
}

static void takes_all_memory(void) {
    for (;;) {
        char *more = malloc(1 << 20);
        if (more == NULL)
            abort();
        memset(more, 1, 1 << 20);
    }
}

static void writes_where_it_may_not(const struct ropewalk_event *event) {
    uint8_t *bytes = (uint8_t *)event->fragments[0].pieces[0].start;
    mprotect((void *)((uintptr_t)bytes & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE);
    *(volatile uint8_t *)bytes = 'W';
}

/*
 * The decisions' memory begins with 4096 bytes, then 64 for each event: result points into it, behind 1024 of those.
 * Writes a number into the entry that follows the one of this event.
 */
static void writes_to_entry(const struct ropewalk_decision *decision, uint64_t sequence, uint64_t value) {
    uint8_t *entries = decision->result - 1024 * 64;
    memcpy(entries + sequence % 1024 * 64, &value, sizeof value);
}

static void leave(const struct ropewalk_decision *decision) {
    int descriptor;
    for (descriptor = 0; descriptor < 1024; descriptor++)
        close(descriptor);
    (void)decision;
}

/* The first byte says what is to be done. */
static int process(void *mine, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    struct state *state = mine;
    const uint8_t *bytes = event->fragment_count > 0 ? event->fragments[0].pieces[0].start : (const uint8_t *)".";
    uint64_t sum;
    state->events++;
    decision->accept = bytes[0] != '-';
    ropewalk_pass(decision, 0);
    ropewalk_pass(decision, 127);
    ropewalk_pass(decision, 128);
    switch (bytes[0]) {
    case '?': tell(event, decision); return 0;
    case '@': tell_places(event, decision); return 0;
    case '#': sum = checksum(event); memcpy(decision->result, &sum, 8); decision->result_length = 8; return 0;
    case 'R': memset(decision->result, (int)event->number, decision->capacity); decision->result_length = decision->capacity; return 0;
    case '0': decision->result_length = (uint32_t)snprintf((char *)decision->result, 100, "%u %u %llu", state->run,
                                                           state->runs_ended, (unsigned long long)state->events);
              return 0;
    case 'I': decision->result_length = (uint32_t)snprintf((char *)decision->result, 100, "%d", (int)getpid()); return 0;
    case 'u': return -1;
    case 'c': abort();
    case 'e': _exit(0);
    case 'h': for (;;) pause();
    case 't': usleep(50000); return 0;
    case 'w': *(volatile uint8_t *)bytes = 'w'; return 0;
    case 'W': writes_where_it_may_not(event); return 0;
    case 'g': takes_all_memory(); return 0;
    case 'f': return fork() >= 0 ? 0 : -1;
    case 'o': return open("/etc/hostname", O_RDONLY) >= 0 ? 0 : -1;
    case 's': return socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : -1;
    case 'x': leave(decision); return 0;
    case 'l': decision->result_length = decision->capacity + 1; return 0;
    case 'L': decision->result_length = UINT32_MAX; return 0;
    /* The sequence that it is in its place is known in the tests: it is the first event of the process. */
    case '2': writes_to_entry(decision, 1, 1); return 0;
    case 'q': writes_to_entry(decision, 1, 2); return 0;
    case 'n': writes_to_entry(decision, 1, 77); return 0;
    default: return 0;
    }
}

static const char *error(void *state) {
    (void)state;
    return "it did not like the event";
}

static const struct ropewalk_filter filter = {
    {KIND, VERSION, SIZE, 0, "misbehaving filter 0.1"},
    create,
    begin_run,
#ifdef NO_PROCESS
    NULL,
#else
    process,
#endif
    end_run,
    error,
    free,
};

#ifndef NO_TABLE
const struct ropewalk_plugin *ropewalk_plugin(void) { return (const struct ropewalk_plugin *)&filter; }
#endif
