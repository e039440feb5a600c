#!/usr/bin/env python3
"""Sends a front end's data to Ropewalk as generic fragments over TCP (docs/generic-fragment.md).

One file, standard library only. As a module:

    from ropewalk_sender import Sender
    with Sender("127.0.0.1", 5000, source=1, name="telescope") as sender:
        sender.send(event_number, payload)
        sender.flush()  # before you wait for the next trigger

As a program, it sends events with a test pattern:

    python3 ropewalk_sender.py --to 127.0.0.1:5000 --source 1 --events 1000 --rate 100

The timestamps are the wall clock of each sender. Several senders have no common trigger: Ropewalk then reports that the
sources have "no fixed relation" to each other. Give all of them the same --clock-step, as a common trigger clock would.

Fragments gather in a buffer, since one system call for each small fragment would be five times slower. Where
Ropewalk is busy, send and flush wait: nothing is lost on the way.
"""

import argparse
import itertools
import signal
import socket
import struct
import sys
import time

VERSION = 1
HELLO_UTC = 1  # in the hello: timestamps count nanoseconds from 1970-01-01T00:00:00Z
RESYNC = 1  # in a fragment: the numbering of events starts again with this one
BUFFER_BYTES = 65536

_HELLO = struct.Struct("<4sBxHI4x32s16x")
_HEADER = struct.Struct("<4sBxHIIQQ")


def encode_hello(source, flags=0, name=""):
    """The 64 bytes that begin a connection. Of the name, 32 bytes of UTF-8 are used."""
    return _HELLO.pack(b"RWHI", VERSION, flags, source, name.encode())


def encode_header(source, flags, event_number, timestamp_ns, payload_length):
    """The 32 bytes in front of each payload."""
    return _HEADER.pack(b"RWFR", VERSION, flags, source, payload_length, event_number, timestamp_ns)


class Sender:
    """A connection to Ropewalk."""

    def __init__(self, host, port, source, name="", utc=True):
        """Connects and says hello. `utc`: timestamps count from 1970; otherwise from a start of your choice."""
        self.source = source
        self.utc = utc
        self._socket = socket.create_connection((host, port))
        self._buffer = bytearray(encode_hello(source, HELLO_UTC if utc else 0, name))

    def send(self, event_number, payload, timestamp_ns=None, resync=False):
        """Sends the data of one event.

        Event numbers grow by one from trigger to trigger, the same in every front end. Without a timestamp the
        time is taken now; 0 means that there is no clock. `resync`: the numbering starts again with this event.
        """
        if timestamp_ns is None:
            timestamp_ns = time.time_ns() if self.utc else 0
        flags = RESYNC if resync else 0
        self._buffer += encode_header(self.source, flags, event_number, timestamp_ns, len(payload))
        self._buffer += payload
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self):
        """Sends what has gathered; waits while Ropewalk is busy."""
        self._socket.sendall(self._buffer)
        self._buffer.clear()

    def close(self):
        """Sends what has gathered and closes the connection."""
        try:
            self.flush()
        finally:
            self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if failure is None:
            self.close()
        else:
            self._socket.close()  # it is unknown how much of the buffer was sent


_stopped = False


def _stop(*_):
    """The first Ctrl-C ends after the event at hand; a second one ends at once."""
    global _stopped
    _stopped = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _number(text):
    value = int(text)
    if value < 0:
        raise ValueError("a number below zero")
    return value


def _rate(text):
    value = float(text)
    if not value >= 0:
        raise ValueError("a rate below zero")
    return value


def _address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def _parse(arguments):
    parser = argparse.ArgumentParser(description="Sends events with a test pattern to Ropewalk.")
    add = parser.add_argument
    add("--to", type=_address, default="127.0.0.1:5000", metavar="HOST:PORT", help="where Ropewalk listens")
    add("--source", type=_number, default=1, metavar="N", help="the id of this front end")
    add("--name", default="example", metavar="TEXT", help="its name, at most 32 bytes")
    add("--events", type=_number, default=1000, metavar="N", help="how many events to send; 0 goes on until Ctrl-C")
    add("--rate", type=_rate, default=100.0, metavar="HZ", help="events per second; 0 goes as fast as it can")
    add("--size", type=_number, default=1024, metavar="BYTES", help="payload of each event")
    add("--first", type=_number, default=1, metavar="N", help="the first event's number")
    add("--resync-after", type=_number, default=0, metavar="N",
        help="starts the numbering again after so many events; 0 never")
    add("--clock-step", type=_number, default=0, metavar="NS",
        help="timestamps grow by this instead of telling the time; 0 tells the time")
    add("--wait", type=_number, default=10, metavar="S", help="how long to try until Ropewalk listens")
    return parser.parse_args(arguments)


def _open_patiently(options):
    """Tries until Ropewalk listens: the two may start in any order."""
    deadline = time.monotonic() + options.wait
    while True:
        try:
            return Sender(*options.to, options.source, options.name, utc=options.clock_step == 0)
        except OSError:
            if _stopped or time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def _send_events(sender, options):
    start = time.monotonic()
    event_number = options.first
    pattern = bytes(range(256)) * (options.size // 256 + 2)
    for index in itertools.count():
        if _stopped or index == options.events > 0:
            break
        resync = index > 0 and index == options.resync_after
        if resync:
            event_number = options.first
        if options.rate > 0:
            delay = start + index / options.rate - time.monotonic()
            if delay > 0:
                sender.flush()
                time.sleep(delay)
        timestamp_ns = index * options.clock_step if options.clock_step else None
        shift = event_number & 0xFF
        sender.send(event_number, pattern[shift : shift + options.size], timestamp_ns, resync)
        event_number += 1
    print(f"sent {index} events", file=sys.stderr)


def main(arguments=None):
    """The program."""
    options = _parse(arguments)
    signal.signal(signal.SIGINT, _stop)
    try:
        with _open_patiently(options) as sender:
            _send_events(sender, options)
    except OSError as error:
        sys.exit(f"ropewalk_sender: {error}")


if __name__ == "__main__":
    main()
