/*
 * What every plug-in of Ropewalk has in common: how it is found, and how it says what it is.
 *
 * A plug-in is a shared library with one function of a fixed name, ropewalk_plugin, which returns a table that lives as
 * long as the library. The table begins with a struct ropewalk_plugin; what follows depends on its kind
 * (ropewalk_splitter.h, ropewalk_filter.h).
 */
#ifndef ROPEWALK_PLUGIN_H
#define ROPEWALK_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ropewalk_plugin_kind { ROPEWALK_PLUGIN_SPLITTER = 1, ROPEWALK_PLUGIN_FILTER = 2 };

struct ropewalk_plugin {
    uint32_t kind;    /* enum ropewalk_plugin_kind */
    uint32_t version; /* of that kind's table: the constant that its header defines */
    uint32_t size;    /* of the whole table, in bytes; a later header may append fields to it */
    uint32_t reserved;
    const char *name; /* for people, with your own version: "tdc-board 1.2" */
};

/* The library's table. */
const struct ropewalk_plugin *ropewalk_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
