#!/usr/bin/env python3
"""Stands in for a board that sends each trigger as a datagram, in its own format (docs/tutorials/own-board.md).

    python3 board.py HOST:PORT [TRIGGERS] [TRIGGERS PER SECOND]
"""

import random
import socket
import struct
import sys
import time

CLOCK_HZ = 125_000_000


def datagram(trigger, clock, hits):
    """A head of 16 bytes, and 4 bytes for each hit; all numbers are big-endian."""
    head = struct.pack(">4sIIHH", b"BRD1", trigger, clock & 0xFFFFFFFF, 16 + 4 * len(hits), 0)
    return head + b"".join(struct.pack(">HH", channel, charge) for channel, charge in hits)


def main(where, triggers=10000, rate=1000.0):
    host, port = where.rsplit(":", 1)
    board = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    begun = due = time.monotonic()
    for trigger in range(1, triggers + 1):
        due += random.expovariate(rate)
        time.sleep(max(0.0, due - time.monotonic()))
        hits = [(random.randrange(64), random.randrange(4096)) for _ in range(random.randrange(1, 20))]
        clock = int((time.monotonic() - begun) * CLOCK_HZ)
        board.sendto(datagram(trigger, clock, hits), (host, int(port)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]), *map(float, sys.argv[3:4]))
