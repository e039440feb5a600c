"""A trigger source in Python for tests: a trigger each half millisecond or so, and its own numbers say what run
control asked for.

Arguments: the address of run control. Ends when it is killed.
"""

import sys
import time

from ropewalk_source import TRIGGERING, Source


class Trigger(Source):
    """It has what hardware would hold and release."""

    def enable(self):
        self.done, self.due = 0, time.monotonic()
        self.counters = {"triggers": 0, "holds": 0, "releases": 0}

    def hold(self):
        self.counters["holds"] += 1

    def release(self):
        self.counters["releases"] += 1

    def pull(self):
        """The triggers that have come by now."""
        now = time.monotonic()
        while self.due <= now:
            self.due += 0.0005
            self.counters["triggers"] += 1
            event = self.trigger()
            if event is not None:
                self.send(event, b"trigger!")


with Trigger(sys.argv[1], source=1, name="python trigger") as trigger:
    while trigger.poll(0.001):
        if trigger.stage == TRIGGERING:
            trigger.pull()
