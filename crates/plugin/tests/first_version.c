/*
 * A filter as it was built when the host offered nothing and a decision had no fills: the structs are those of that time.
 */
#include <stddef.h>
#include <stdint.h>

struct plugin { uint32_t kind, version, size, reserved; const char *name; };
struct host { uint32_t size, reserved; };
struct decision { uint32_t size, accept; uint64_t bits[2]; uint8_t *result; uint32_t capacity, result_length; };
struct filter {
    struct plugin plugin;
    void *(*create)(const struct host *, const char *, char *, size_t);
    void (*begin_run)(void *, uint32_t);
    int (*process)(void *, const void *, struct decision *);
    void (*end_run)(void *);
    const char *(*error)(void *);
    void (*destroy)(void *);
};

static int created;

static void *create(const struct host *host, const char *configuration, char *error, size_t capacity) {
    (void)configuration, (void)error, (void)capacity;
    return host->size >= sizeof *host && host->reserved == 0 ? &created : NULL;
}

static int process(void *state, const void *event, struct decision *decision) {
    (void)event;
    decision->accept = state == &created && decision->size >= sizeof *decision;
    decision->result[0] = 'o';
    decision->result_length = 1;
    return 0;
}

static const struct filter filter = {{2, 1, sizeof(struct filter), 0, "old 0.1"}, create, 0, process, 0, 0, 0};

const struct plugin *ropewalk_plugin(void) { return &filter.plugin; }
