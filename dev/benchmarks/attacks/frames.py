"""Frames of HTTP/2 (RFC 9113) and header blocks without compression (RFC 7541)."""

from __future__ import annotations

from edgeserve.serve.grpc_messages import SERVICE

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _length(value: int, prefix: int = 7) -> bytes:
    """A number as HPACK writes it, with the prefix's upper bits 0."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes([value])
    out, value = [most], value - most
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def line(name: bytes, value: bytes, kept: bool = False) -> bytes:
    """One header, literal; ``kept``: the other side adds it to its table."""
    first = b"\x40" if kept else b"\0"
    return first + _length(len(name)) + name + _length(len(value)) + value


def call(name: str) -> bytes:
    """The header block of a call of the protocol."""
    lines = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"/{SERVICE}/{name}".encode(),
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    return b"".join(line(*each) for each in lines.items())


def message(data: bytes) -> bytes:
    """A message of gRPC, not packed."""
    return b"\0" + len(data).to_bytes(4, "big") + data


def setting(number: int, value: int) -> bytes:
    """One setting."""
    return number.to_bytes(2, "big") + value.to_bytes(4, "big")


#: What a client sends first.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
