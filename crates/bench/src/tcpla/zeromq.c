/* One ZeroMQ PUSH socket and one PULL socket over loopback, a thread each: BYTES MILLISECONDS -> 10^9 bytes a second. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

static size_t bytes;
static void *context;
static char address[256];
static atomic_int stop;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *push(void *unused) {
    void *socket = zmq_socket(context, ZMQ_PUSH);
    char *message = malloc(bytes);
    memset(message, 0x5a, bytes);
    zmq_connect(socket, address);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) zmq_send(socket, message, bytes, 0);
    int linger = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_close(socket);
    return unused;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    bytes = strtoul(arguments[1], 0, 10);
    double duration = strtod(arguments[2], 0) / 1000, begin = 0, end = 0, received = 0;
    size_t length = sizeof address;
    context = zmq_ctx_new();
    /* The library's own threads share both processors with ours, as they do wherever it is used on two. */
    void *socket = zmq_socket(context, ZMQ_PULL);
    if (zmq_bind(socket, "tcp://127.0.0.1:*") || zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &length)) return 1;
    pthread_t sender;
    if (pthread_create(&sender, 0, push, 0)) return 1;
    pin(0);
    zmq_msg_t message;
    zmq_msg_init(&message);
    double first = now();
    while (end - begin < duration || !begin) {
        if (zmq_msg_recv(&message, socket, 0) < 0) return 1;
        end = now();
        if (begin) received += zmq_msg_size(&message);
        else if (end - first > duration / 4) begin = end;
    }
    printf("%.6f\n", received / (end - begin) / 1e9);
    fflush(stdout);
    /* The reader has ended: the sender may block for ever, so the process exits without it. */
    _Exit(0);
}
