"""Reads run files, from docs/run-file.md alone: it shares no code with the product, so that both must agree.

Needs no package: CRC-32C is computed here where the `crc32c` module is not installed, and packed segments are read where
`zstandard` (or Python 3.14) or `lz4` is there.
"""

import collections
import glob
import os
import struct

try:
    from crc32c import crc32c
except ImportError:

    def _tables():
        first = []
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            first.append(byte)
        tables = [first]
        for _ in range(7):
            tables.append([first[last & 0xFF] ^ last >> 8 for last in tables[-1]])
        return tables

    _T = _tables()

    def crc32c(data):
        """The Castagnoli CRC, eight bytes at a time."""
        t0, t1, t2, t3, t4, t5, t6, t7 = _T
        crc, whole = 0xFFFFFFFF, len(data) & ~7
        for (word,) in struct.iter_unpack("<Q", memoryview(data)[:whole]):
            word ^= crc
            crc = (
                t7[word & 0xFF] ^ t6[word >> 8 & 0xFF] ^ t5[word >> 16 & 0xFF] ^ t4[word >> 24 & 0xFF]
                ^ t3[word >> 32 & 0xFF] ^ t2[word >> 40 & 0xFF] ^ t1[word >> 48 & 0xFF] ^ t0[word >> 56]
            )
        for byte in memoryview(data)[whole:]:
            crc = t0[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


class CannotTell(Exception):
    """Something is needed that is not installed here."""


HEADER, BEGIN, EVENT, END, FOOTER, PACKED = 1, 2, 3, 4, 5, 6

Fragment = collections.namedtuple("Fragment", "source flags raw_id raw_time bytes")
Event = collections.namedtuple("Event", "key incarnation flags attempt missing fragments path offset length")


def records(data, problems, path):
    """The records: offset, kind, length, and the record's bytes where its CRC holds."""
    at = 0
    while at < len(data):
        head = data[at : at + 16]
        if len(head) == 16 and head[:4] == b"RWKR" and crc32c(head[:12]) == struct.unpack_from("<I", head, 12)[0]:
            kind, _, length = struct.unpack_from("<HHI", head, 4)
            if length % 8 or not 24 <= length <= 1 << 30:
                problems.append((path, at, "a length of %d" % length))
                return
            record = data[at : at + length]
            if len(record) < length:
                problems.append((path, at, "the file ends within a record"))
                return
            if crc32c(record[:-4]) == struct.unpack_from("<I", record, length - 4)[0]:
                yield at, kind, length, record
            else:
                problems.append((path, at, "the CRC of a record does not hold"))
            at += length
            continue
        if path.endswith(".open") and len(data) - at < 4096 and not any(data[at:]):
            return
        problems.append((path, at, "no header of a record"))
        at = next((place for place in range(at + 8 & ~7, len(data), 8) if data[place : place + 4] == b"RWKR"), len(data))


def unpacked(codec, data, length):
    if codec == 2:
        try:
            import lz4.block
        except ImportError as error:
            raise CannotTell("lz4 is not installed") from error
        return lz4.block.decompress(data, uncompressed_size=length)
    try:
        from compression import zstd

        return zstd.decompress(data)
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError as error:
        raise CannotTell("zstandard is not installed") from error
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)


def unpack(data, problems, path):
    """The segment that packed stretches hold."""
    whole = bytearray()
    for at, kind, _, record in records(data, problems, path):
        if kind != PACKED:
            problems.append((path, at, "a record of kind %d among packed ones" % kind))
            continue
        place, length, packed, codec = struct.unpack_from("<QIIH", record, 16)
        whole.extend(bytes(max(0, place - len(whole))))
        whole[place : place + length] = unpacked(codec, record[40 : 40 + packed], length)
    return bytes(whole)


def event_of(at, length, record, problems, path):
    key, incarnation, flags, attempt, _, missing_count, count, begin, size, stride, step = struct.unpack_from(
        "<QQIHHIIIIHH", record, 16
    )
    place, missing, fragments = 64, [], []
    for _ in range(missing_count):
        missing.append(struct.unpack_from("<IB", record, place))
        place += stride
    for _ in range(count):
        source, fragment_flags, raw_id, raw_time = struct.unpack_from("<IIQQ", record, place)
        offset, bytes_ = struct.unpack_from("<II", record, place + 40)
        if not begin <= offset <= offset + bytes_ <= begin + size <= length - 4:
            problems.append((path, at, "a fragment of source %d lies outside of its record" % source))
        fragments.append(Fragment(source, fragment_flags, raw_id, raw_time, record[offset : offset + bytes_]))
        place += step
    return Event(key, incarnation, flags, attempt, missing, fragments, path, at, length)


def segment(path, problems):
    """The events of a file. What is wrong with it is appended to `problems`."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) >= 6 and struct.unpack_from("<H", data, 4)[0] == PACKED:
        data = unpack(data, problems, path)
    events, footer = [], None
    for at, kind, length, record in records(data, problems, path):
        if (at == 0) != (kind == HEADER):
            problems.append((path, at, "a record of kind %d" % kind))
        if kind == HEADER and (record[16:24] != b"ROPEWALK" or struct.unpack_from("<H", record, 24)[0] != 1):
            problems.append((path, at, "no segment of major version 1"))
        if kind == EVENT:
            events.append(event_of(at, length, record, problems, path))
        if kind == FOOTER:
            count, stride = struct.unpack_from("<II", record, 16)
            footer = [struct.unpack_from("<QQQIIIHH", record, 48 + stride * index) for index in range(count)]
    index = [
        (e.key, e.offset, e.incarnation, e.length, len(e.fragments), len(e.missing), e.attempt, e.flags & 0xFFFF)
        for e in events
    ]
    if footer is None and not path.endswith(".open"):
        problems.append((path, 0, "closed without an index"))
    if footer is not None and footer != index:
        problems.append((path, 0, "the index differs from the events"))
    return events


def read(directories):
    """One copy of each event, by key: a complete one before others, then the latest attempt. And what is wrong."""
    problems, best = [], {}
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(directory, "*.rwk")) + glob.glob(os.path.join(directory, "*.rwk.open"))):
            for event in segment(path, problems):
                rank = (not event.missing, event.attempt, event.incarnation)
                if event.key not in best or rank > best[event.key][0]:
                    best[event.key] = (rank, event)
    return {key: event for key, (_, event) in sorted(best.items())}, problems
