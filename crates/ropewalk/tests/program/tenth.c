/*
 * A filter that keeps every tenth event by its number, stores the number with it, fills it into a histogram, and ends over event 777 of
 * each thousand. With the macro TIMED it stores behind the number when it decided, in nanoseconds of the monotonic clock.
 */
#include "ropewalk_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* It ends over one of so many events. */
#ifndef ENDS_OVER
#define ENDS_OVER 1000
#endif
/* Milliseconds that it takes over each event. */
#ifndef SLOW
#define SLOW 0
#endif

static int numbers;
#ifdef TAKES
void *taken;
#endif

static void *create(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity) {
    (void)configuration, (void)error, (void)capacity;
    numbers = ropewalk_histogram(host, "number", 2000, 1, 20001);
    return &numbers;
}

static int process(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    (void)state;
    ropewalk_fill(decision, numbers, (double)event->number);
    for (clock_t begin = clock(); (clock() - begin) * 1000 < SLOW * CLOCKS_PER_SEC;)
        ;
    if (event->number % ENDS_OVER == 777 % ENDS_OVER) {
#ifdef OPENS /* a file, which it must not */
        if (fopen(OPENS, "w"))
            return 0;
#endif
#ifdef TAKES /* so many bytes, which it must not */
        if ((taken = malloc(TAKES)))
            return 0;
#endif
        abort();
    }
    decision->accept = event->number % 10 == 0;
    if (decision->accept)
        ropewalk_pass(decision, event->number % 20 == 0);
    memcpy(decision->result, &event->number, decision->result_length = sizeof event->number);
#ifdef TIMED
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t nanoseconds = now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
    memcpy(decision->result + decision->result_length, &nanoseconds, sizeof nanoseconds);
    decision->result_length += sizeof nanoseconds;
#endif
    return 0;
}

static const struct ropewalk_filter filter = {ROPEWALK_FILTER_HEAD("tenth"), create, NULL, process, NULL, NULL, NULL};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
