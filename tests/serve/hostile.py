"""Requests that nobody sends by accident, made by hand: all but their tensors.

A case is what it is, method, path, body and headers; ``hostile_tensors.py`` holds the others.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator

__all__ = ["Case", "cases"]

Case = tuple[str, str, bytes, "bytes | list[bytes]", "dict[str, str]"]
INFER, PREDICT = b"/v2/models/tagger/infer", b"/v2/models/tagger/predict"
GOOD = {"name": "image", "shape": [1, 3, 8, 8], "datatype": "FP32", "data": [0] * 192}


def cases() -> list[Case]:
    """All of them."""
    made = [*_paths(), *_methods(), *_heads(), *_packings(), *_raws(), *_controls(), *_deadlines()]
    names = [case[0] for case in made]
    assert len(set(names)) == len(names), "a case is named twice"
    return made


def _paths() -> Iterator[Case]:
    tricks = [
        b"/",
        b"//",
        b"/v2/",
        b"/v2//models",
        b"/v3",
        b"/../etc/passwd",
        b"/v2/../../etc/passwd",
        b"/v2/models/../../../etc/passwd",
        b"/v2/models/%2e%2e/%2e%2e/etc/passwd",
        b"/v2/models/..%2f..%2fetc%2fpasswd/infer",
        b"/v2/models/./infer",
        b"/v2/models/../infer",
        b"/v2/models//infer",
        b"/v2/models/tagger/../tagger/infer",
        b"/v2/models/tagger/infer/",
        b"/v2/models/tagger/infer/x",
        b"/v2/models/tagger%00/infer",
        b"/v2/models/tagger\0/infer",
        b"/v2/models/tag ger/infer",
        b"/v2/models/tagger\n/infer",
        b"/v2/models/tagger\r\nx: y/infer",
        b"/v2/models/\xff\xfe/infer",
        b"/v2/models/\xc3\xa4/infer",
        "/v2/models/\uff54agger/infer".encode(),
        b"/v2/models/TAGGER/infer",
        b"/V2/models/tagger/infer",
        b"/v2/models/tagger./infer",
        b"/v2/models/.tagger/infer",
        b"/v2/models/" + b"a" * 2000 + b"/infer",
        b"/v2/models/NAME/infer",
        b"/v2/models/tagger/versions//infer",
        b"/v2/models/tagger/versions/0/infer",
        b"/v2/models/tagger/versions/-1/infer",
        b"/v2/models/tagger/versions/999999999999/infer",
        b"/v2/models/tagger/versions/1.0/infer",
        b"/v2/models/tagger/versions/VERSION/infer",
        b"/v2/models/C:\\windows\\win.ini/infer",
        b"/v2/models/file:\\\\/infer",
        b"http://evil/v2",
        b"/v2/models/$(id)/infer",
        b"/v2/models/`id`/infer",
        b"/v2/models/{{7*7}}/infer",
        b"/v2/models/<script>/infer",
        b"/v2/models/' OR 1=1/infer",
        b"/v2/models/__class__/infer",
        b"/v2/models/__init__/infer",
        b"*",
        b"",
        b"v2",
        b"/metrics/../v2",
        b"/" + b"a/" * 500,
        b"/openapi.json/..",
        b"/.git/config",
        b"/v2/repository/models/../../x/load",
    ]
    for i, path in enumerate(tricks):
        yield f"path {i} {path[:40]!r}", "POST", path, b"{}", {}


def _methods() -> Iterator[Case]:
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "post"):
        yield f"method {method}", method, INFER, b"", {}
    for path in (b"/v2", b"/metrics", b"/openapi.json", b"/v2/models/tagger", b"/v2/health/live"):
        yield f"post {path!r}", "POST", path, b"x", {}


def _heads() -> Iterator[Case]:
    body = json.dumps({"inputs": [GOOD]}).encode()
    for value in (
        "-1",
        "0",
        "1",
        "abc",
        "",
        " ",
        "1e3",
        "0x10",
        "\uff11\uff12",
        "99999999",
        "9" * 12,
        "9" * 40,
        "1,2",
        "+5",
        "5;5",
        "5 5",
    ):
        yield (
            f"head length {value!r}",
            "POST",
            INFER,
            body,
            {"inference-header-content-length": _latin(value)},
        )
    for value in ("-1", "abc", "1e9", "", "\uff19", "9" * 13, "nan", "inf", "0x1", "1.5"):
        yield f"deadline {value!r}", "POST", INFER, body, {"x-request-deadline-ms": _latin(value)}
    for value in ("99999999999", "-5", "abc", "1e9"):
        yield f"content length {value!r}", "POST", INFER, body, {"content-length": value}
    for value in (
        "br",
        "zstd",
        "gzip, gzip",
        "GZIP;q=1",
        "compress",
        "identity, gzip",
        "\xff",
        "chunked",
    ):
        yield f"encoding {value!r}", "POST", INFER, body, {"content-encoding": value}


def _latin(text: str) -> str:
    return text.encode("utf-8").decode("latin-1")


def _packings() -> Iterator[Case]:
    good = json.dumps({"inputs": [GOOD]}).encode()
    bomb = gzip.compress(b"\0" * (300 << 20), 9)
    packed = gzip.compress(good)
    made: dict[str, tuple[bytes, str]] = {
        "a gzip bomb": (bomb, "gzip"),
        "a deflate bomb": (zlib.compress(b"[" * (200 << 20), 9), "deflate"),
        "a bomb in a bomb": (gzip.compress(bomb), "gzip"),
        "not gzip": (good, "gzip"),
        "not deflate": (good, "deflate"),
        "gzip as deflate": (packed, "deflate"),
        "deflate as gzip": (zlib.compress(good), "gzip"),
        "cut": (packed[:-5], "gzip"),
        "half": (packed[: len(packed) // 2], "gzip"),
        "bytes after": (packed + b"x", "gzip"),
        "two members": (packed * 2, "gzip"),
        "empty": (b"", "gzip"),
        "a wrong sum": (packed[:-8] + b"\0" * 8, "gzip"),
        "raw deflate": (zlib.compress(good)[2:-4], "deflate"),
        "a flipped bit": (packed[:20] + bytes([packed[20] ^ 255]) + packed[21:], "gzip"),
        "only a header": (packed[:10], "gzip"),
    }
    for name, (body, encoding) in made.items():
        yield f"packed {name}", "POST", INFER, body, {"content-encoding": encoding}


def _raws() -> Iterator[Case]:
    png = b"\x89PNG\r\n\x1a\n"
    wide = png + b"\0\0\0\rIHDR" + (1 << 30).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0" + b"\0" * 4
    made = {
        "nothing": b"",
        "a png's head": png,
        "a png of 2^60 pixels": wide,
        "a jpeg's head": b"\xff\xd8\xff\xe0",
        "a gif of 65535": b"GIF89a\xff\xff\xff\xff\x80\0\0",
        "a tiff": b"II*\0\xff\xff\xff\xff",
        "a bmp": b"BM" + b"\xff" * 60,
        "webp": b"RIFF\xff\xff\xff\xffWEBPVP8 ",
        "text": b"hello",
        "a path": b"/etc/passwd",
        "a url": b"http://127.0.0.1/",
        "svg": b"<svg/>",
        "postscript": b"%!PS-Adobe",
        "zeros": b"\0" * 65536,
        "json": b"{}",
        "an npz": b"PK\x03\x04",
    }
    for name, body in made.items():
        yield f"photo {name}", "POST", PREDICT, body, {}


def _controls() -> Iterator[Case]:
    for name in (b"x", b"..", b"tagger.edge", b"%2e%2e"):
        yield f"load {name!r}", "POST", b"/v2/repository/models/" + name + b"/load", b"", {}
        yield f"unload {name!r}", "POST", b"/v2/repository/models/" + name + b"/unload", b"", {}
    load = b"/v2/repository/models/tagger/load"
    yield "load config", "POST", load, b'{"parameters":{"config":"{}"}}', {}
    yield "load files", "POST", load, b'{"parameters":{"file:1/model.onnx":"AAAA"}}', {}
    yield "load list", "POST", load, b"[]", {}
    yield "load deep", "POST", load, b'{"a":' * 10_000, {}
    yield "load long", "POST", load, b" " * 200_000, {}
    yield "index long", "POST", b"/v2/repository/index", b" " * 200_000, {}


def _deadlines() -> Iterator[Case]:
    body = json.dumps({"inputs": [GOOD]}).encode()
    yield "no time at all", "POST", INFER, body, {"x-request-deadline-ms": "0"}
