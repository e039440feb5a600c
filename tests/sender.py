#!/usr/bin/env python3
"""A front end of generic fragments, from docs/generic-fragment.md alone. What it sends follows from source and event.

    sender.py ADDRESS SOURCE FIRST LAST [--rate R] [--cut] [--again] [--wait]

`--cut` closes the connection in the middle of fragments now and then and connects again. `--again` connects again after a loss.
`--wait` prints a line when it is connected, and sends after the end of its input, so that several start together.
"""

import argparse
import hashlib
import random
import socket
import struct
import sys
import time

MOST = 2000
PATIENCE = 60


def payload(source, event):
    digest = hashlib.blake2b(b"%d/%d" % (source, event), digest_size=32).digest()
    length = int.from_bytes(digest[:4], "little") % MOST
    return (digest * (length // 32 + 1))[:length]


def fragment(source, event):
    data = payload(source, event)
    return struct.pack("<4sBBHIIQQ", b"RWFR", 1, 0, 0, source, len(data), event, event * 1000000) + data


def connect(address, source):
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            line = socket.create_connection((host, int(port)))
            line.sendall(struct.pack("<4sBBHII32s16x", b"RWHI", 1, 0, 0, source, 0, b"front end"))
            return line
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    for name in ("source", "first", "last"):
        parser.add_argument(name, type=int)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--hop", action="store_true", help="a connection for each event")
    parser.add_argument("--wait", action="store_true")
    order = parser.parse_args()
    line, event = connect(order.address, order.source), order.first
    if order.wait:
        print("connected", flush=True)
        sys.stdin.read()
    begin = time.monotonic()
    chance = random.Random(order.source)
    while event <= order.last:
        last = min(order.last, event if order.cut or order.hop else event + 15)
        data = b"".join(fragment(order.source, number) for number in range(event, last + 1))
        try:
            if order.cut and chance.random() < 0.01:
                line.sendall(data[: chance.randrange(1, len(data))])
                line.close()
                line = connect(order.address, order.source)
                continue
            line.sendall(data)
        except OSError:
            if not order.again:
                sys.exit("source %d: the connection was lost at event %d" % (order.source, event))
            line = connect(order.address, order.source)
            continue
        event = last + 1
        if order.hop and event <= order.last:
            line.close()
            line = connect(order.address, order.source)
        if order.rate:
            time.sleep(max(0, begin + (event - order.first) / order.rate - time.monotonic()))
    line.close()


if __name__ == "__main__":
    main()
