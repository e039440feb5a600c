#!/usr/bin/env python3
"""Slow control under run control: it reports voltages and temperatures, and sends a small fragment for each trigger.

    PYTHONPATH=bindings/python python3 examples/own-hardware/slow_control.py --control 127.0.0.1:5100 --source 3

Settings: trigger = "127.0.0.1:5101" (where triggers are seen, line.h), period = 0.5 (seconds between readings). Without
`trigger` it sends no fragments: give its source `requirement = "masked"` then. Ends with Ctrl-C.
"""

import argparse
import math
import signal
import socket
import struct
import time

from ropewalk_source import Source

TRIGGER = struct.Struct("<QQ")


class SlowControl(Source):
    """Reads what changes slowly."""

    line, period, due = None, 0.5, 0.0

    def configure(self, settings):
        # A line of the settings is `name = value`; tomllib reads more than that.
        values = dict(line.split(" = ", 1) for line in settings.splitlines() if " = " in line)
        self.period = float(values.get("period", "0.5"))
        if self.line is not None:
            self.line.close()
        self.line, self.seen = None, bytearray()
        if "trigger" in values:
            host, port = values["trigger"].strip('"').split(":")
            self.line = socket.create_connection((host, int(port)), timeout=5)
            self.line.setblocking(False)

    def stop(self, run, last):
        if self.line is None:
            self.done()

    def read_out(self):
        """Sends a fragment for each trigger that has come; whether there were any."""
        if self.line is None:
            return False
        try:
            received = self.line.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if not received:
            self.line.close()
            self.line = None
            return False
        self.seen += received
        whole = len(self.seen) // TRIGGER.size * TRIGGER.size
        for event, time_ns in TRIGGER.iter_unpack(self.seen[:whole]):
            self.send(event, struct.pack("<Q", event), time_ns)
        del self.seen[:whole]
        return True

    def read_slowly(self):
        """Reports what it measures, where it is time to."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + self.period
        for channel in range(4):
            self.report(f"hv/ch{channel}", 1500 + 23 * math.sin(now / 60 + channel), "V")
        self.report("temperature/crate", 31.5 + 0.5 * math.sin(now / 600), "C")


def main():
    parser = argparse.ArgumentParser(description="Slow control under Ropewalk's run control.")
    parser.add_argument("--control", default="127.0.0.1:5100", metavar="HOST:PORT")
    parser.add_argument("--source", default=3, type=int, metavar="N")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: exit(0))
    with SlowControl(options.control, options.source, "slow-control", versions="example 1") as slow_control:
        was_busy = False
        while slow_control.poll(0 if was_busy else 0.002):
            was_busy = slow_control.read_out()
            slow_control.read_slowly()


if __name__ == "__main__":
    main()
