#!/usr/bin/env python3
"""A front end under Ropewalk's run control: configured, started and stopped by it (docs/front-end-control.md).

One file, standard library only, no threads: everything happens inside `poll` and `send`.

    from ropewalk_source import Source

    class Telescope(Source):
        def configure(self, settings): ...          # raise an exception on failure
        def start(self, run, first, last): ...
        def stop(self, run, last): ...              # send the remaining data up to `last`, now or in your loop

    with Telescope("127.0.0.1:5100", source=2, name="telescope") as telescope:
        while telescope.poll(timeout=0.01):
            for event, payload in read_the_board():
                telescope.send(event, payload)
            telescope.report("temperature/1", 31.5, "C")

`poll` speaks with run control, calls it again when the connection was lost, and sends what has gathered; call it often.
The trigger source asks `trigger()` for the number of each event, and says `veto("busy")` for each trigger that it had to
let pass. Where Ropewalk is busy, `send` waits; `send(..., wait=False)` returns False instead, and `waited_ns` tells how
long it was in all.
"""

import errno
import select
import socket
import struct
import time

CONTROL_VERSION = 2
LIBRARY_VERSION = "ropewalk_source.py 2"

CLOCK_NONE, CLOCK_UTC, CLOCK_OWN = 0, 1, 2
IDLE, READY, STARTED, TRIGGERING, VETOED, STOPPED = range(6)

# Kinds of messages; each frame is "RWC", kind, length of the body, little-endian.
HELLO, WELCOME, REFUSE = 1, 2, 3
CONFIGURE, START, ENABLE, VETO, STOP, PING, HOLD, RELEASE = range(16, 24)
(READY_WORD, FAILED, STARTED_WORD, ENABLED, VETOED_WORD, STOPPED_WORD, STATUS, REPORT, HELD, RELEASED) = range(32, 42)

UNKNOWN = (1 << 64) - 1
BUFFER_BYTES = 1 << 20  # fragments that may wait for the network before `send` waits
FLUSH_BYTES = 1 << 16  # this much is sent without waiting for the next poll
RETRY_SECONDS = 0.5
CONNECT_SECONDS = 5.0
STATUS_SECONDS = 1.0
MOST_WAITING_WORDS = 1 << 20  # bytes of reports that run control has not taken: more are left out

_FRAME = struct.Struct("<3sBI")
_DATA_HELLO = struct.Struct("<4sBxHI4x32s16x")
_DATA_HEADER = struct.Struct("<4sBxHIIQQ")
_DATA_HEADER_BYTES = 32


def _text(text, most):
    encoded = text.encode()[:most].decode(errors="ignore").encode()
    return struct.pack("<H", len(encoded)) + encoded


def _numbers(numbers):
    kept = list(numbers.items())[:32]
    return struct.pack("<H", len(kept)) + b"".join(_text(name, 64) + struct.pack("<Q", count) for name, count in kept)


def _place(address, default_host):
    host, _, port = address.rpartition(":")
    return host.strip("[]") or default_host, int(port)


class _Line:
    """A connection that is being made, is established, or will be made again after a while."""

    def __init__(self):
        self.socket = None
        self.is_up = False
        self.retry = 0.0
        self.limit = 0.0

    def begin(self, place, now):
        self.close(now)
        try:
            addresses = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = addresses[0]
            self.socket = socket.socket(family, kind, protocol)
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self.socket.connect_ex(address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, "connect")
            self.limit = now + CONNECT_SECONDS
        except OSError:
            self.close(now)

    def check(self, now):
        """Whether the connection has just been established."""
        if self.socket is None or self.is_up:
            return False
        _, writable, _ = select.select([], [self.socket], [], 0)
        if writable and self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            self.is_up = True
            return True
        if writable or now >= self.limit:
            self.close(now)
        return False

    def close(self, now):
        if self.socket is not None:
            self.socket.close()
        self.socket, self.is_up, self.retry = None, False, now + RETRY_SECONDS


class Source:
    """A front end under run control. Inherit from it, and override the methods that your front end needs."""

    def __init__(self, run_control, source, name="", clock=CLOCK_UTC, versions=""):
        """`run_control`: HOST:PORT as Ropewalk prints it at its start; `source`: the `id` in the configuration;
        `versions`: of your firmware and program, for display."""
        self.source, self.name, self.clock = source, name, clock
        self.versions = f"{versions} {LIBRARY_VERSION}".strip()
        self.stage, self.run, self.first, self.last = IDLE, 0, 1, None
        self.is_held = False  # the run is paused: no trigger makes an event
        self.sent = self.sent_bytes = self.waited_ns = self.reports_left_out = 0
        self.counters = {}  # your own counters, which every status contains
        self.text = ""  # your own status text
        self._place = _place(run_control, "127.0.0.1")
        self._control, self._data, self._data_place = _Line(), _Line(), None
        self._incoming, self._outgoing = bytearray(), bytearray()
        self._buffer, self._begin, self._gone = bytearray(), 0, 0
        self._ready_for, self._stop_last, self._is_stopping, self._is_done = None, None, False, False
        self._first_sent = self._last_sent = None
        self._issued, self._next, self._vetoed = 0, 1, {}
        self._status_due, self._is_closed, self._has_command = 0.0, False, False

    # Methods to override. An exception is reported to run control as a failure.

    def configure(self, settings):
        """Get ready with these settings (a text: your `[source.settings]` as TOML)."""

    def start(self, run, first, last):
        """Take data from event `first` on; `last` is None if it is not known yet."""

    def enable(self):
        """Only the trigger source: `trigger` returns numbers from now on."""

    def inhibit(self):
        """Only the trigger source: it returns no more numbers."""

    def hold(self):
        """Only the trigger source: the run is paused. `trigger` then returns no number and counts triggers as vetoed:
        "paused". Override it if hardware has to hold triggers."""

    def release(self):
        """Only the trigger source: the pause is over, and `trigger` returns the next number. If a pause ends with the stop of
        the run, `inhibit` is called instead."""

    def stop(self, run, last):
        """The run ends with event `last` (None: at the present event). Send the remaining data here or later in your loop; the
        library answers when the fragment of event `last` was sent, or when you call `done()`."""

    # Methods to call.

    @property
    def is_running(self):
        """Whether to send events."""
        return self.stage in (STARTED, TRIGGERING, VETOED)

    def trigger(self):
        """Only the trigger source: the number of the event of this trigger, or None if triggers are not accepted."""
        if self.stage not in (STARTED, TRIGGERING):
            return None
        if self.stage != TRIGGERING:
            self.veto("not_enabled")
            return None
        if self.is_held:
            self.veto("paused")
            return None
        if self.last is not None and self._next > self.last:
            self.veto("run_complete")
            return None
        self._issued += 1
        self._next += 1
        return self._next - 1

    def veto(self, cause):
        """Only the trigger source: counts a trigger that makes no event, with the cause."""
        if self.stage in (STARTED, TRIGGERING):
            self._issued += 1
            self._vetoed[cause] = self._vetoed.get(cause, 0) + 1

    def send(self, event, payload, timestamp_ns=None, wait=True):
        """Sends the data of one event. Returns False if there is no room and `wait` is False, or if the readout unit is gone
        and run control has sent a command. Send events in the order of their numbers."""
        length = _DATA_HEADER_BYTES + len(payload)
        if len(self._buffer) - self._gone + length > BUFFER_BYTES and len(self._buffer) > self._gone:
            self._flush()
            began = time.monotonic_ns()
            while len(self._buffer) - self._gone + length > BUFFER_BYTES and len(self._buffer) > self._gone:
                # Run control may send commands although the readout unit is gone.
                if not wait or self._is_closed or (self._has_command and not self._data.is_up):
                    return False
                self._serve(0.05, only_pings=True)
                self.waited_ns += time.monotonic_ns() - began
                began = time.monotonic_ns()
        if timestamp_ns is None:
            timestamp_ns = time.time_ns() if self.clock == CLOCK_UTC else 0
        self._buffer += _DATA_HEADER.pack(b"RWFR", 1, 0, self.source, len(payload), event, timestamp_ns)
        self._buffer += payload
        self.sent += 1
        self.sent_bytes += length
        self._first_sent = event if self._first_sent is None else self._first_sent
        self._last_sent = event
        if len(self._buffer) - self._gone >= FLUSH_BYTES:
            self._flush()
        return True

    def done(self):
        """After a stop: no more data will be sent, even if the fragment of the last event was not."""
        self._is_done = True

    def report(self, name, value, unit="", time_ns=None):
        """Reports a slow reading, which is stored with its time in the run's files. False if run control is not connected."""
        if not self._control.is_up or len(self._outgoing) > MOST_WAITING_WORDS:
            self.reports_left_out += 1
            return False
        body = struct.pack("<qd", time.time_ns() if time_ns is None else time_ns, float(value))
        self._say(REPORT, body + _text(name, 64) + _text(unit, 64))
        return True

    def poll(self, timeout=0.0):
        """Communicates with run control and sends collected data; sleeps at most `timeout` seconds if there is no work.
        Returns False once the source is closed."""
        self._serve(timeout, only_pings=False)
        return not self._is_closed

    def close(self):
        """Ends both connections; collected data are lost if Ropewalk is busy."""
        self._flush()
        self._is_closed = True
        for line in (self._control, self._data):
            line.close(0.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Implementation.

    def _serve(self, timeout, only_pings):
        now = time.monotonic()
        for line, place in ((self._control, self._place), (self._data, self._data_place)):
            if line.socket is None and place is not None and now >= line.retry:
                line.begin(place, now)
        reads = [line.socket for line in (self._control, self._data) if line.is_up]
        writes = [line.socket for line in (self._control, self._data) if line.socket is not None and not line.is_up]
        if self._control.is_up and self._outgoing:
            writes.append(self._control.socket)
        if self._data.is_up and self._gone < len(self._buffer):
            writes.append(self._data.socket)
        if timeout > 0 and not (reads or writes):
            time.sleep(min(timeout, RETRY_SECONDS))
        elif reads or writes:
            select.select(reads, writes, [], timeout)
        now = time.monotonic()
        if self._control.check(now):
            self._greet()
        if self._data.check(now):
            self._greet_data()
        self._read_control(now)
        self._watch_data(now)
        self._obey(only_pings)
        self._flush()
        self._answer(now)
        self._write_control(now)

    def _say(self, kind, body=b""):
        self._outgoing += _FRAME.pack(b"RWC", kind, len(body)) + body

    def _greet(self):
        """Sends id and stage; anything begun over an earlier connection is void."""
        self._incoming.clear()
        self._outgoing.clear()
        body = b"RWSOURCE" + struct.pack("<HBBII", CONTROL_VERSION, self.clock, self.stage, self.source, self.run)
        name = self.name.encode()[:32]
        held = struct.pack("<B", self.is_held)
        self._say(HELLO, body + name.ljust(32, b"\0") + _text(self.versions, 1024) + held)

    def _greet_data(self):
        flags = 1 if self.clock == CLOCK_UTC else 0
        hello = _DATA_HELLO.pack(b"RWHI", 1, flags, self.source, self.name.encode()[:32])
        # A partly sent fragment is sent again completely; a hello is for one connection.
        del self._buffer[: self._begin]
        if self._buffer.startswith(b"RWHI"):
            del self._buffer[: _DATA_HELLO.size]
        self._buffer[0:0] = hello
        self._begin = self._gone = 0

    def _read_control(self, now):
        while self._control.is_up:
            try:
                received = self._control.socket.recv(65536)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                received = b""
            if not received:
                self._control.close(now)
                return
            self._incoming += received

    def _watch_data(self, now):
        """The readout unit sends nothing over the data connection, so readable data mean its end."""
        if not self._data.is_up:
            return
        try:
            if not self._data.socket.recv(4096):
                self._data.close(now)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._data.close(now)

    def _write_control(self, now):
        while self._control.is_up and self._outgoing:
            try:
                del self._outgoing[: self._control.socket.send(self._outgoing)]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._control.close(now)

    def _flush(self):
        """Sends collected data, as far as the network accepts it."""
        while self._data.is_up and self._gone < len(self._buffer):
            try:
                with memoryview(self._buffer) as view:
                    self._gone += self._data.socket.send(view[self._gone : self._gone + (1 << 18)])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._data.close(time.monotonic())
        while self._begin < self._gone:
            length = self._fragment_bytes(self._begin)
            if self._begin + length > self._gone:
                break
            self._begin += length
        if self._begin == len(self._buffer):
            self._buffer.clear()
            self._begin = self._gone = 0
        elif self._begin > BUFFER_BYTES // 2:
            del self._buffer[: self._begin]
            self._gone, self._begin = self._gone - self._begin, 0

    def _fragment_bytes(self, at):
        """Size of the record that begins there: a fragment, or the hello of a connection."""
        if self._buffer[at : at + 4] == b"RWHI":
            return _DATA_HELLO.size
        return _DATA_HEADER_BYTES + int.from_bytes(self._buffer[at + 12 : at + 16], "little")

    def _obey(self, only_pings):
        """Carries out complete commands. While `send` waits, commands wait too, so that no callback runs inside it."""
        self._has_command = False
        while len(self._incoming) >= _FRAME.size:
            magic, kind, length = _FRAME.unpack_from(self._incoming)
            if magic != b"RWC":
                self._control.close(time.monotonic())
                return
            if len(self._incoming) < _FRAME.size + length:
                break
            if only_pings and kind != PING:
                self._has_command = True
                break
            body = bytes(self._incoming[_FRAME.size : _FRAME.size + length])
            # Before the callback, which may call `send` and so enter this method again.
            del self._incoming[: _FRAME.size + length]
            self._command(kind, body)
        if only_pings and time.monotonic() >= self._status_due:
            self._tell_status()

    def _command(self, kind, body):
        if kind == REFUSE:
            reason, version = struct.unpack("<BH", body)
            why = {1: f"it speaks version {version}", 2: "no source with this id is under run control"}
            self.text = "refused: " + why.get(reason, "another program is connected as this source")
            self._control.close(time.monotonic() + RETRY_SECONDS)
        elif kind == PING:
            self._tell_status()
        elif kind in (CONFIGURE, START, ENABLE, VETO, STOP, HOLD, RELEASE):
            run = int.from_bytes(body[:4], "little")
            try:
                self._run_command(kind, run, body[4:])
            except Exception as error:  # run control gets every failure of a callback
                self._say(FAILED, struct.pack("<I", run) + _text(f"{type(error).__name__}: {error}", 1024))

    def _run_command(self, kind, run, body):
        if kind == CONFIGURE:
            self._configure(run, body)
        elif run != self.run or self.stage == IDLE:
            # An unknown run: nothing was sent.
            if kind == STOP:
                self._say(STOPPED_WORD, struct.pack("<IQQQ", run, UNKNOWN, UNKNOWN, 0))
        elif kind == START:
            if self.stage == READY:
                first, last = struct.unpack("<QQ", body)
                self.first, self.last = first, None if last == UNKNOWN else last
                self._next, self._issued, self._vetoed = first, 0, {}
                self.start(run, first, self.last)
                self.stage = STARTED
            self._say(STARTED_WORD, struct.pack("<I", run))
        elif kind == ENABLE:
            if self.stage == STARTED:
                self.enable()
                self.stage = TRIGGERING
            self._say(ENABLED, struct.pack("<I", run))
        elif kind == VETO:
            if self.stage in (READY, STARTED, TRIGGERING):
                self.stage, self.is_held = VETOED, False
                self.inhibit()
            self._say(VETOED_WORD, struct.pack("<IQQ", run, self._next - 1, self._issued) + _numbers(self._vetoed))
        elif kind in (HOLD, RELEASE):
            self._hold(kind == HOLD)
        elif kind == STOP and not self._is_stopping:
            (last,) = struct.unpack("<Q", body)
            self._stop_last = None if last == UNKNOWN else last
            self._is_stopping, self.is_held = True, False
            self._is_done = self._stop_last is None or self.stage == READY
            if self.stage in (STARTED, TRIGGERING):
                self.stage = VETOED
            self.stop(run, self._stop_last)
        # A second stop needs no answer while the first is in flight; after the end it is answered again.
        elif kind == STOP and self.stage == STOPPED:
            self._tell_stopped()

    def _hold(self, is_held):
        """A pause of the run begins or ends. On failure the state does not change."""
        if self.stage in (STARTED, TRIGGERING) and self.is_held != is_held:
            if is_held:
                self.hold()
            else:
                self.release()
            self.is_held = is_held
        if is_held:
            self._say(HELD, struct.pack("<IQ", self.run, self._next - 1))
        else:
            self._say(RELEASED, struct.pack("<I", self.run))

    def _configure(self, run, body):
        if run != self.run or self.stage in (IDLE, STOPPED):
            if self.stage in (STARTED, TRIGGERING, VETOED) and not self._is_stopping:
                self.stop(self.run, None)
            self._data.close(0.0)
            self._buffer.clear()
            self._begin = self._gone = self.sent = self.sent_bytes = self.waited_ns = 0
            self._first_sent = self._last_sent = self._stop_last = None
            self._is_stopping = self._is_done = self.is_held = False
            self.stage, self.run = IDLE, run
            length = int.from_bytes(body[:2], "little")
            self._data_place = _place(body[2 : 2 + length].decode(), self._place[0])
            try:
                self.configure(body[4 + length :].decode())
            except Exception:
                self._data_place, self.run = None, 0
                raise
            self._data.begin(self._data_place, time.monotonic())
        # The answer is sent when the data connection is established.
        self._ready_for = time.monotonic() + CONNECT_SECONDS

    def _answer(self, now):
        """Sends due answers: the data connection is established, or all data were sent."""
        if self._ready_for is not None:
            if self._data.is_up:
                self.stage = max(self.stage, READY)
                self._say(READY_WORD, struct.pack("<I", self.run))
                self._ready_for = None
            elif now >= self._ready_for:
                text = "no connection to the readout unit at {}:{}".format(*self._data_place)
                self._say(FAILED, struct.pack("<I", self.run) + _text(text, 1024))
                self._data_place, self.run, self._ready_for = None, 0, None
        if self._is_stopping and self.stage != STOPPED:
            has_last = self._stop_last is not None and (
                self._stop_last < self.first or (self._last_sent is not None and self._last_sent >= self._stop_last)
            )
            if (has_last or self._is_done) and not self._buffer:
                self.stage = STOPPED
                self._data_place = None
                self._data.close(now)
                self._tell_stopped()
        if self.stage != IDLE and now >= self._status_due:
            self._tell_status()

    def _tell_stopped(self):
        first, last = (UNKNOWN if event is None else event for event in (self._first_sent, self._last_sent))
        self._say(STOPPED_WORD, struct.pack("<IQQQ", self.run, first, last, self.sent))

    def _tell_status(self):
        self._status_due = time.monotonic() + STATUS_SECONDS
        if self._control.is_up:
            body = struct.pack("<IBQQQ", self.run, self.stage, self.sent, self.sent_bytes, self.waited_ns)
            self._say(STATUS, body + _text(self.text, 1024) + _numbers(self.counters))
