"""gRPC by its own client: large, packed and odd messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dev.benchmarks.attacks.registry import Tally, Target, attack
from edgeserve.serve.grpc_messages import SERVICE

_MB = 1 << 20
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
]


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    """A field of bytes, a string, or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def calls(
    target: Target,
    tally: Tally,
    data: bytes,
    *,
    name: str = "ModelInfer",
    count: int = 4,
    metadata: Any = None,
    packed: bool = False,
    channels: int = 1,
) -> None:
    """Send a message, so many calls at a time, until the time is over."""
    import grpc

    how = grpc.Compression.Gzip if packed else None
    made = [
        grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options=_OPTIONS)
        for _ in range(channels)
    ]
    asks = [one.unary_unary(f"/{SERVICE}/{name}") for one in made]
    tally.connections += channels
    while not target.over:
        timeout = target.seconds + 10
        waiting = [
            asks[i % channels].future(data, timeout, metadata, compression=how)
            for i in range(count)
        ]
        tally.sent += count * len(data)
        for one in waiting:
            _count(tally, one)
    for channel in made:
        channel.close()


def _count(tally: Tally, call: Any) -> None:
    import grpc

    try:
        call.result()
    except grpc.RpcError as error:
        tally.grpc(error.code().name, str(error.details()))
    else:
        tally.grpc("OK", "")


_WRONG = (("x-api-key", "wrong"),)
_NAME = field(1, b"tagger")
#: A tensor that is named and typed, for messages of one.
_TENSOR = field(1, b"image") + field(2, b"FP32")


def _add(title: str, make: Callable[[], bytes], needs: dict[str, Any], **how: Any) -> None:
    @attack(f"gRPC: {title}", **needs)
    def run(target: Target, tally: Tally) -> None:
        calls(target, tally, make(), **how)


def _repeat(unit: bytes, megabytes: int = 60) -> Callable[[], bytes]:
    return lambda: _NAME + unit * ((megabytes * _MB - 64) // len(unit))


_KEYED = {"keys": True}
_zeros = _repeat(b"\x08\x01")
_add("60 MB, wrong key, 30 at once", _zeros, _KEYED, count=30, metadata=_WRONG)
_add("60 MB, wrong key, 10 channels", _zeros, _KEYED, count=10, channels=10, metadata=_WRONG)
_PACKED_WRONG = {"count": 12, "packed": True, "metadata": _WRONG}
_add("60 MB in 60 KB, wrong key, 12 at once", _zeros, _KEYED, **_PACKED_WRONG)
_add("60 MB in 60 KB, 12 at once", _zeros, {}, count=12, packed=True)
_add("600 MB in 600 KB", lambda: bytes(600 * _MB), {}, count=2, packed=True)
_add("60 MB to a call without a key", _zeros, _KEYED, count=30, name="ServerLive")
_add("60 MB of raw contents, 30 at once", lambda: _NAME + field(7, bytes(60 * _MB)), {}, count=30)
_add("12 MB of raw contents, 50 at once", lambda: _NAME + field(7, bytes(12 * _MB)), {}, count=50)
_add("more than the limit", lambda: bytes(70 * _MB), {}, count=4)

_SUBMESSAGES = {
    "empty inputs": b"\x2a\0",
    "empty outputs": b"\x32\0",
    "empty raw contents": b"\x3a\0",
    "empty parameters": b"\x22\0",
    "inputs with empty contents": field(5, field(5, b"")),
    "inputs with empty parameters": field(5, b"\x22\0" * 50),
    "outputs with empty parameters": field(6, b"\x1a\0" * 50),
    "strings of no length": field(5, field(5, b"\x42\0" * 60)),
    "flags one by one": field(5, field(5, b"\x08\1" * 60)),
    "unknown fields": b"\xfa\x7d\0",
    "unknown groups": b"\xfb\x7d\xfc\x7d",
    "a name again and again": _NAME,
}
for _title, _unit in _SUBMESSAGES.items():
    _add(f"60 MB of {_title}", _repeat(_unit), {}, count=1)
    _add(f"12 MB of {_title}, 2 at once", _repeat(_unit, 12), {}, count=2)
_add("60 MB of empty inputs, wrong key", _repeat(b"\x2a\0"), _KEYED, count=4, metadata=_WRONG)
_add("12 MB of empty inputs, 8 at once", _repeat(b"\x2a\0", 12), {}, count=8)
_add("60 KB of empty inputs packed", _repeat(b"\x2a\0"), {}, count=4, packed=True)
_add(
    "a shape of 60 million lengths",
    lambda: _NAME + field(5, _TENSOR + field(3, b"\1" * (60 * _MB))),
    {},
)
_add(
    "numbers of one byte for 64 bits, 60 million",
    lambda: _NAME + field(5, _TENSOR + field(5, field(3, b"\1" * (60 * _MB)))),
    {},
)
_add("groups inside groups", lambda: _NAME + b"\x0b" * (16 * _MB), {})
_CUT = _NAME + b"\x2a\xff\xff\xff\x7f" + bytes(1000)
_add("a message that ends early", lambda: _CUT, {}, count=50)
_add("empty messages, 1000 at once", lambda: b"", {}, count=1000)
_add(
    "statistics asked for by unknown names, 500 at once",
    lambda: field(1, b"a" * 60_000),
    {},
    count=500,
    name="ModelStatistics",
)
_add(
    "metadata of 15 KB, 500 at once",
    lambda: b"",
    {},
    count=500,
    name="ServerLive",
    metadata=(("x", "a" * 15_000),),
)
_add(
    "4000 lines of metadata, 100 at once",
    lambda: b"",
    {},
    count=100,
    name="ServerLive",
    metadata=tuple((f"k{i}", "v") for i in range(4000)),
)


@attack("gRPC: streams that never end, 500")
def streams(target: Target, tally: Tally) -> None:
    """A call that is made for one message gets its first and no end."""
    import time

    import grpc

    def endless() -> Iterator[bytes]:
        yield _NAME
        while not target.over:
            time.sleep(0.1)

    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options=_OPTIONS) as channel:
        ask = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        waiting = [ask.future(endless(), timeout=target.seconds + 5) for _ in range(500)]
        for one in waiting:
            _count(tally, one)


@attack("gRPC: messages without end in one call, 20 calls")
def many_messages(target: Target, tally: Tally) -> None:
    import grpc

    def messages() -> Iterator[bytes]:
        while not target.over:
            tally.sent += 1_000_000
            yield bytes(1_000_000)

    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options=_OPTIONS) as channel:
        ask = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        while not target.over:
            for one in [ask.future(messages(), timeout=target.seconds + 5) for _ in range(20)]:
                _count(tally, one)


@attack("gRPC: deadlines of an hour, bodies of 60 MB, 20 at once")
def an_hour(target: Target, tally: Tally) -> None:
    data = _NAME + field(5, _TENSOR + field(3, b"\xd0\x80\5\3\x08\x08")) + field(7, bytes(60 * _MB))
    calls(target, tally, data, count=20)


@attack("gRPC: calls cancelled as soon as they are made")
def cancelled(target: Target, tally: Tally) -> None:
    import grpc

    data = _NAME + bytes([0x3A]) + varint(_MB) + bytes(_MB)
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options=_OPTIONS) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        while not target.over:
            for one in [ask.future(data, timeout=10) for _ in range(20)]:
                one.cancel()
            tally.statuses["CANCELLED"] += 20
            tally.sent += 20 * len(data)
