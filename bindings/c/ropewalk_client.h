/*
 * A filter as a program of your own, started by a run (docs/filters.md, "A program as a filter"): it reads events in place
 * in the run's memory, and decides on each.
 *
 * This header and ropewalk_client.c; C99 or C++ on Linux, nothing but libc, no threads.
 *
 *     int main(void) {
 *         const struct ropewalk_event *event;
 *         struct ropewalk_decision *decision;
 *         struct ropewalk_client *client = ropewalk_client_open();
 *         if (client == NULL || ropewalk_client_ready(client) != 0)
 *             return 1;
 *         while ((event = ropewalk_client_next(client, &decision)) != NULL) {
 *             decision->accept = event->fragment_count > 3;
 *             ropewalk_client_decide(client);
 *         }
 *         ropewalk_client_close(client);
 *         return 0;
 *     }
 */
#ifndef ROPEWALK_CLIENT_H
#define ROPEWALK_CLIENT_H

#include "ropewalk_event.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ropewalk_client;

/*
 * Connects to the run that started this program, over standard input. Returns NULL if no run has started it, or one of another
 * version, and prints the reason on standard error. From now on the program ends with the thread that started it.
 */
struct ropewalk_client *ropewalk_client_open(void);

/* The text of the filter's key `configuration`, terminated by a zero. It is valid until the client is closed. */
const char *ropewalk_client_configuration(const struct ropewalk_client *client);

/* Bytes of memory that the filter may use, by its key `memory`. The program itself must keep to it. */
uint64_t ropewalk_client_memory(const struct ropewalk_client *client);

/*
 * Declares a histogram, as ropewalk_histogram does for a library's filter (ropewalk_filter.h). Call it before
 * ropewalk_client_ready. Returns the number for ropewalk_fill; negative if the name is invalid, or there are 64 already. A run
 * refuses a filter with invalid bins or limits.
 */
int ropewalk_client_histogram(struct ropewalk_client *client, const char *name, uint32_t bins, double low, double high);

/* Tells the run to send events. Returns 0, or -1 if the run has gone. */
int ropewalk_client_ready(struct ropewalk_client *client);

/* Refuses to filter, with the reason: the run does not begin, and prints this text. */
void ropewalk_client_refuse(struct ropewalk_client *client, const char *why);

/*
 * Waits for the next event; it and its bytes are valid until it is decided. Fill in `decision`, which rejects the event by
 * default. Returns NULL if the run has gone. Decide on the previous event first.
 */
const struct ropewalk_event *ropewalk_client_next(struct ropewalk_client *client, struct ropewalk_decision **decision);

/* Sends the decision that was filled in. */
void ropewalk_client_decide(struct ropewalk_client *client);

/* Reports that the event cannot be decided; it counts as one on which the filter failed. */
void ropewalk_client_give_up(struct ropewalk_client *client);

void ropewalk_client_close(struct ropewalk_client *client);

#ifdef __cplusplus
}
#endif

#endif
