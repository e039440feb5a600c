/*
 * A filter that attacks its run: while it is loaded, as the macro LOADING says, or over an event, as its configuration
 * says. It tells on standard error what came of it.
 */
#define _GNU_SOURCE
#include "ropewalk_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKET 3 /* over which its process speaks with the run */

static char mode[64];

static int is(const char *name) { return strcmp(mode, name) == 0; }

static void tell(const char *what, long result) {
    fprintf(stderr, "%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

#ifdef LOADING
static void limit_parent(int resource, rlim_t most) {
    struct rlimit limit = {most, most};
    tell("limit", prlimit(getppid(), resource, &limit, NULL));
}

static void open_of_parent(const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), name);
    tell(name, open(path, flags));
}

static void open_terminals(void) {
    char path[32];
    int number;
    tell("/dev/tty", open("/dev/tty", O_RDONLY));
    for (number = 0; number < 8; number++) {
        snprintf(path, sizeof path, "/dev/pts/%d", number);
        if (open(path, O_RDONLY) >= 0)
            tell(path, 0);
    }
}

__attribute__((constructor)) static void loading(void) {
    char byte = '#';
    strcpy(mode, LOADING);
    if (is("limit_processor")) limit_parent(RLIMIT_CPU, 1);
    if (is("limit_file_size")) limit_parent(RLIMIT_FSIZE, 0);
    if (is("limit_files")) limit_parent(RLIMIT_NOFILE, 3);
    if (is("type_into_terminal")) tell("type", ioctl(2, TIOCSTI, &byte));
    if (is("take_terminal")) tell("take", ioctl(2, TIOCSCTTY, 1));
    if (is("open_terminals")) open_terminals();
    if (is("do_not_block")) tell("nonblock", fcntl(2, F_SETFL, O_NONBLOCK));
    if (is("send_signals")) tell("owner", fcntl(SOCKET, F_SETOWN, getppid()));
    if (is("outlive")) tell("outlive", prctl(PR_SET_PDEATHSIG, 0));
    if (is("read_passwords")) tell("shadow", open("/etc/shadow", O_RDONLY));
    if (is("become_root")) tell("setuid", syscall(SYS_setuid, 0));
    if (is("look_into_parent")) {
        open_of_parent("environ", O_RDONLY);
        open_of_parent("mem", O_RDONLY);
        open_of_parent("fd", O_RDONLY | O_DIRECTORY);
    }
    if (is("write_to_parent")) open_of_parent("mem", O_RDWR);
    if (is("read_input")) fprintf(stderr, "input: %ld bytes, terminal %d\n", (long)read(0, mode, 1), isatty(1));
    if (is("hang")) for (;;) pause();
    if (is("take_memory")) {
        while (malloc(16 << 20) != NULL)
            ;
        tell("memory", -1);
    }
    if (is("print")) {
        printf("a line\n");
        fprintf(stderr, "\033]0;a title\007\n");
    }
}
#endif

static void *create(const struct ropewalk_host *host, const char *configuration, char *error, size_t capacity) {
    (void)host;
    snprintf(mode, sizeof mode, "%s", configuration);
    if (is("long_error")) {
        memset(error, 'A', capacity);
        return NULL;
    }
    return mode;
}

/* Uses up the stack. */
static int deeper(volatile int *above) {
    volatile int room[1000];
    room[0] = *above + 1;
    return room[0] < 0 ? 0 : deeper(room) + room[0];
}

static void *waits(void *argument) {
    pause();
    return argument;
}

static void map_descriptors(void) {
    int descriptor;
    for (descriptor = 0; descriptor < 64; descriptor++)
        if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) != MAP_FAILED)
            tell("mapped", 0);
}

static void say(const char *letters, size_t most) {
    char bytes[256];
    size_t at;
    for (at = 0; at < sizeof bytes; at++)
        bytes[at] = letters != NULL ? letters[0] : (char)rand();
    send(SOCKET, bytes, 1 + (size_t)rand() % most, MSG_DONTWAIT);
}

static int process(void *mine, const struct ropewalk_event *event, struct ropewalk_decision *decision) {
    uint8_t *bytes = (uint8_t *)event->fragments[0].pieces[0].start;
    pthread_t thread;
    int count;
    (void)mine;
    decision->accept = 1;
    if (is("read")) open("/etc/passwd", O_RDONLY);
    if (is("write")) open("written", O_RDWR | O_CREAT, 0666);
    if (is("connect")) socket(AF_INET, SOCK_STREAM, 0);
    if (is("fork")) fork();
    if (is("exec")) execl("/bin/true", "true", (char *)NULL);
    if (is("trace")) ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
    if (is("kill")) kill(getppid(), SIGKILL);
    if (is("kill_thread")) syscall(SYS_tgkill, getppid(), getppid(), SIGKILL);
    if (is("limit")) prlimit(getppid(), RLIMIT_CPU, &(struct rlimit){1, 1}, NULL);
    if (is("type")) ioctl(2, TIOCSTI, "#");
    if (is("owner")) fcntl(SOCKET, F_SETOWN, getppid());
#ifdef __x86_64__
    if (is("other_numbers")) syscall(0x40000000 | 2, "/etc/passwd", 0);
    if (is("old_calls")) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(5), "b"("/etc/passwd"), "c"(0) : "memory");
    }
#endif
    if (is("write_event")) *(volatile uint8_t *)bytes = 0x55;
    if (is("unprotect_event")) {
        tell("mprotect", mprotect((void *)((uintptr_t)bytes & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE));
        *(volatile uint8_t *)bytes = 0x55;
    }
    if (is("map_descriptors")) map_descriptors();
    if (is("hang")) for (;;) continue;
    if (is("sleep")) for (;;) pause();
    if (is("take_memory")) {
        uint8_t *more;
        while ((more = malloc(1 << 20)) != NULL) memset(more, 1, 1 << 20);
        abort();
    }
    if (is("stack")) deeper(&(int){0});
    if (is("flood")) for (;;) say("Z", 256);
    if (is("ready_again")) for (;;) say("R", 256);
    if (is("garbage")) for (count = 0; count < 200; count++) say(NULL, 64);
    if (is("print")) for (count = 0; count < 100000; count++) fprintf(stderr, "line %d\n", count);
    if (is("print_for_ever")) for (;;) fprintf(stderr, "one more line\n");
    if (is("long_result")) decision->result_length = UINT32_MAX;
    if (is("overflow")) {
        memset(decision->result, 'r', (size_t)decision->capacity * 16);
        decision->result_length = decision->capacity;
    }
    if (is("fills")) for (count = 0; count < 100000; count++) ropewalk_fill(decision, count % 70, NAN);
    if (is("exit")) exit(0);
    if (is("close")) for (count = 0; count < 1024; count++) close(count);
    if (is("thread")) pthread_create(&thread, NULL, waits, NULL);
    if (is("scribble")) memset((uint8_t *)((uintptr_t)decision->result & ~(uintptr_t)4095), 0xff, 4096 * 64);
    if (is("scribble_back")) {
        uint64_t *at = (uint64_t *)((uintptr_t)decision->result & ~(uintptr_t)4095);
        for (count = 0; count < 4096 * 64 / 8; count++) *--at = 0x4141414141414141u;
    }
    return is("no_error_text") ? -1 : 0;
}

static const char *error(void *state) {
    (void)state;
    return (const char *)16;
}

static const struct ropewalk_filter filter = {ROPEWALK_FILTER_HEAD("hostile"), create, NULL, process, NULL, error, NULL};
const struct ropewalk_plugin *ropewalk_plugin(void) { return &filter.plugin; }
