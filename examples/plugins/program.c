/*
 * A filter as a program of its own (docs/filters.md): it keeps one event of N, the number in its configuration, and stores its
 * size with it, also in a histogram.
 */
#include "ropewalk_client.h"

#include <stdlib.h>

int main(void) {
    struct ropewalk_client *client = ropewalk_client_open();
    const struct ropewalk_event *event;
    struct ropewalk_decision *decision;
    unsigned long long one_of;
    int sizes;
    if (client == NULL)
        return 1;
    one_of = strtoull(ropewalk_client_configuration(client), NULL, 10);
    if (one_of == 0) {
        ropewalk_client_refuse(client, "the configuration is a number: one event of so many is kept");
        return 1;
    }
    sizes = ropewalk_client_histogram(client, "event size", 256, 0, 65536);
    ropewalk_client_ready(client);
    while ((event = ropewalk_client_next(client, &decision)) != NULL) {
        uint64_t bytes = 0;
        size_t one;
        for (one = 0; one < event->fragment_count; one++)
            bytes += event->fragments[one].length;
        decision->accept = event->number % one_of == 0;
        ropewalk_fill(decision, sizes, (double)bytes);
        memcpy(decision->result, &bytes, decision->result_length = sizeof bytes);
        ropewalk_client_decide(client);
    }
    ropewalk_client_close(client);
    return 0;
}
