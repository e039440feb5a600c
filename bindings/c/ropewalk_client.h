/*
 * A filter as a program of your own, started by a run (docs/filters.md, "A program as a filter"): it reads events where they lie
 * in the run's memory, and says what becomes of each.
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
 * The run that started this program, spoken to over its standard input. NULL where it was not started by one, or of another
 * version; standard error says so. From now on the program ends with the thread that started it.
 */
struct ropewalk_client *ropewalk_client_open(void);

/* The text of the filter's key `configuration`, ended by a zero. It is there until the client is closed. */
const char *ropewalk_client_configuration(const struct ropewalk_client *client);

/* Bytes of memory that the filter may take, by its key `memory`; to keep to it, or to have it limited, is the program's matter. */
uint64_t ropewalk_client_memory(const struct ropewalk_client *client);

/*
 * Declares a histogram, as ropewalk_histogram does for a library's filter (ropewalk_filter.h), before it is said that events may
 * come. Returns what ropewalk_fill needs; negative where the name cannot be one, or there are 64 already. A run refuses a filter
 * whose bins or limits make no sense.
 */
int ropewalk_client_histogram(struct ropewalk_client *client, const char *name, uint32_t bins, double low, double high);

/* Says that events may come. Returns 0, and -1 where nobody is there any more. */
int ropewalk_client_ready(struct ropewalk_client *client);

/* Says instead why none may come: the run that tries the filter out does not begin, and shows this text. */
void ropewalk_client_refuse(struct ropewalk_client *client, const char *why);

/*
 * Waits for the next event; it and its bytes are there until it is decided. `decision` is what to fill in: it rejects the event as
 * it comes. NULL where nobody is there any more. The one before it must have been decided.
 */
const struct ropewalk_event *ropewalk_client_next(struct ropewalk_client *client, struct ropewalk_decision **decision);

/* Says what becomes of the event: what was filled in. */
void ropewalk_client_decide(struct ropewalk_client *client);

/* Says that the event cannot be decided; it counts as one over which the filter failed. */
void ropewalk_client_give_up(struct ropewalk_client *client);

void ropewalk_client_close(struct ropewalk_client *client);

#ifdef __cplusplus
}
#endif

#endif
