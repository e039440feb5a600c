/* A filter that keeps every tenth event by its number, stores the number with it, and ends over event 777 and its thousands. */
#include "ropewalk_filter.h"

#include <stdlib.h>

static int process(void *state, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    (void)state;
    if (event->number % 1000 == 777)
        abort();
    decision->accept = event->number % 10 == 0;
    if (decision->accept)
        ropewalk_pass(decision, event->number % 20 == 0);
    memcpy(decision->result, &event->number, decision->result_length = sizeof event->number);
    return 0;
}

static const struct ropewalk_filter filter = {ROPEWALK_FILTER_HEAD("tenth"), NULL, NULL, process, NULL, NULL, NULL};

const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
