#!/usr/bin/env python3
"""Emulates the board of examples/splitter: datagrams of several triggers each.

    python3 board.py HOST:PORT [TRIGGERS] [TRIGGERS PER SECOND]
"""

import socket
import struct
import sys
import time

PACKING = 7


def datagram(first, last):
    """The triggers from first to last, each with some hits."""
    parts = [b"TB", struct.pack("<H", last - first + 1)]
    for trigger in range(first, last + 1):
        hits = bytes([trigger & 0xFF]) * (trigger % 50)
        parts.append(struct.pack("<IH", trigger, len(hits)) + hits)
    return b"".join(parts)


def main(where, triggers=10000, rate=5000.0):
    host, port = where.rsplit(":", 1)
    board = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    board.connect((host, int(port)))
    begun = time.monotonic()
    for first in range(1, triggers + 1, PACKING):
        time.sleep(max(0.0, begun + first / rate - time.monotonic()))
        board.send(datagram(first, min(first + PACKING - 1, triggers)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]), *map(float, sys.argv[3:4]))
