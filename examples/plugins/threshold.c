/* A first filter (docs/filters.md): it adds up the 16-bit samples of one source, and keeps events whose sum reaches a threshold.
 * Its configuration is two numbers: the source's id and the threshold. The sum is stored with the event, and in a histogram. */
#include "ropewalk_filter.h"

#include <stdio.h>
#include <stdlib.h>

struct threshold { unsigned source; unsigned long long least; int sums; };

static void *create(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity) {
    struct threshold *mine = malloc(sizeof *mine);
    if (mine != NULL && sscanf(configuration, "%u %llu", &mine->source, &mine->least) == 2) {
        mine->sums = ropewalk_histogram(host, "sum of samples", 100, 0, 2.0 * (double)mine->least + 100);
        return mine;
    }
    snprintf(error, capacity, "the configuration is a source's id and a threshold, such as \"11 5000\"");
    free(mine);
    return NULL;
}

static int process(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    const struct threshold *mine = state;
    const struct ropewalk_fragment *fragment = ropewalk_fragment_of(event, mine->source);
    uint64_t sum = 0;
    uint8_t sample[2];
    for (size_t at = 0; fragment != NULL && ropewalk_copy(fragment, at, sample, 2) == 2; at += 2)
        sum += sample[0] | sample[1] << 8;
    if ((decision->accept = sum >= mine->least))
        ropewalk_pass(decision, 0);
    ropewalk_fill(decision, mine->sums, (double)sum);
    memcpy(decision->result, &sum, decision->result_length = sizeof sum);
    return 0;
}

static const struct ropewalk_filter filter = {
    ROPEWALK_FILTER_HEAD("threshold 1.0"), create, NULL, process, NULL, NULL, free};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
