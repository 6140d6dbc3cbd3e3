"""Bodies that are small on the wire: gzip and deflate."""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Iterator

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies, flood, head

_MB = 1 << 20
_HOUR = "X-Request-Deadline-Ms: 3600000"
_GZIP, _DEFLATE = "Content-Encoding: gzip", "Content-Encoding: deflate"


def _zeros(target: Target) -> bytes:
    return bytes(target.body_mb * _MB - 1024)


@attack("compressed: gzip of zeros, 120 at once, deadline of an hour")
def many(target: Target, tally: Tally) -> None:
    body = gzip.compress(_zeros(target), 9)
    bodies(target, tally, target.infer, body, _GZIP, _HOUR, count=120)


@attack("compressed: deflate of zeros, 40 at once")
def deflated(target: Target, tally: Tally) -> None:
    body = zlib.compress(_zeros(target), 9)
    bodies(target, tally, target.infer, body, _DEFLATE, _HOUR, count=40)


@attack("compressed: gzip of zeros to predict, 40 at once")
def predicted(target: Target, tally: Tally) -> None:
    body = gzip.compress(_zeros(target), 9)
    bodies(target, tally, target.predict, body, _GZIP, _HOUR, count=40)


@attack("compressed: ten times the limit, 40 at once")
def too_large(target: Target, tally: Tally) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(packer.compress(bytes(16 * _MB)) for _ in range(40)) + packer.flush()
    bodies(target, tally, target.infer, body, _GZIP, count=40)


@attack("compressed: gzip of zeros, wrong key, 40 at once", keys=True)
def without_key(target: Target, tally: Tally) -> None:
    body = gzip.compress(_zeros(target), 9)
    bodies(target, tally, target.infer, body, _GZIP, "X-API-Key: wrong", count=40)


@attack("compressed: members behind each other")
def members(target: Target, tally: Tally) -> None:
    body = gzip.compress(b"{}") * 200_000
    bodies(target, tally, target.infer, body, _GZIP)


@attack("compressed: gzip inside gzip")
def nested(target: Target, tally: Tally) -> None:
    body = gzip.compress(gzip.compress(_zeros(target), 9), 9)
    bodies(target, tally, target.infer, body, "Content-Encoding: gzip, gzip", count=20)


@attack("compressed: a file name in the header that does not end")
def header(target: Target, tally: Tally) -> None:
    body = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"a" * (target.body_mb * _MB - 1024)
    bodies(target, tally, target.infer, body, _GZIP)


@attack("compressed: blocks that hold nothing")
def empty_blocks(target: Target, tally: Tally) -> None:
    """12 million stored blocks of zero bytes: all work, no output."""
    count = (target.body_mb * _MB - 1024) // 5
    body = b"\x78\x9c" + b"\0\0\0\xff\xff" * count + b"\x01\0\0\xff\xff" + struct.pack(">I", 1)
    bodies(target, tally, target.infer, body, _DEFLATE)


@attack("compressed: blocks with a table each")
def tables(target: Target, tally: Tally) -> None:
    """Each block has a Huffman table of its own for one byte: the slowest that inflate has."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_DEFAULT_STRATEGY)
    text = bytes(range(32, 127))
    block = b"".join(packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(50_000))
    bodies(target, tally, target.infer, block + packer.flush(), _DEFLATE)


@attack("compressed: drops of a bomb, 40 connections")
def dripped(target: Target, tally: Tally) -> None:
    """Whoever unpacks as pieces come holds much for little."""
    whole = gzip.compress(_zeros(target), 9)
    first = head("POST", target.infer, f"Content-Length: {len(whole)}", _GZIP, _HOUR)

    def pieces() -> Iterator[bytes]:
        yield first + whole[:-8]
        yield from itertools.repeat(b"")

    flood(target, tally, 40, pieces)


@attack("compressed: empty lists, 20 million in 60 KB")
def lists(target: Target, tally: Tally) -> None:
    text = b'{"inputs":[],"parameters":{"a":[' + b"[]," * (20 * _MB) + b"[]]}}"
    bodies(target, tally, target.infer, gzip.compress(text, 9), _GZIP, _HOUR)
