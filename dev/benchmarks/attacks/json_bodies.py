"""JSON that costs more than its bytes: many small values, depth, numbers, names."""

from __future__ import annotations

from collections.abc import Callable

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import bodies

_MB = 1 << 20
_HOUR = "X-Request-Deadline-Ms: 3600000"


def _fill(before: bytes, unit: bytes, after: bytes, megabytes: int = 60) -> Callable[[], bytes]:
    """A unit as often as fits, separated by commas."""
    return lambda: before + (unit + b",") * (megabytes * _MB // (len(unit) + 1)) + unit + after


def _tensor(before: bytes, unit: bytes, after: bytes = b"]}]}") -> Callable[[], bytes]:
    head = b'{"inputs":[{"name":"image","datatype":"FP32",'
    return _fill(head + before, unit, after)


_PARAMETERS, _END = b'{"inputs":[],"parameters":{"a":[', b"]}}"
_BODIES: dict[str, Callable[[], bytes]] = {
    "empty lists in parameters": _fill(_PARAMETERS, b"[]", _END),
    "empty objects in parameters": _fill(_PARAMETERS, b"{}", _END),
    "empty strings in parameters": _fill(_PARAMETERS, b'""', _END),
    "short numbers in parameters": _fill(_PARAMETERS, b"1", _END),
    "floats in parameters": _fill(_PARAMETERS, b"1e9", _END),
    "nulls in parameters": _fill(_PARAMETERS, b"null", _END),
    "nested pairs in parameters": _fill(_PARAMETERS, b'{"a":[{"b":{}}]}', _END),
    "parameters of an input": _tensor(
        b'"shape":[1],"data":[1],"parameters":{"a":[', b"[]", b"]}}]}"
    ),
    "outputs without number": _fill(b'{"inputs":[],"outputs":[', b'{"name":"y"}', b"]}"),
    "outputs that are empty objects": _fill(b'{"inputs":[],"outputs":[', b"{}", b"]}"),
    "inputs without number": _fill(
        b'{"inputs":[', b'{"name":"image","shape":[1],"datatype":"FP32","data":[1]}', b"]}"
    ),
    "inputs that are empty objects": _fill(b'{"inputs":[', b"{}", b"]}"),
    "fields that nobody knows": _fill(b'{"inputs":[],"zzz":[', b"[]", b"]}"),
    "one name for ever again": _fill(b'{"inputs":[],', b'"id":"a"', b"}"),
    "names of parameters, one again": _fill(b'{"inputs":[],"parameters":{', b'"a":1', b"}}"),
    "depth of lists": lambda: b'{"inputs":[],"parameters":{"a":' + b"[" * (16 * _MB),
    "depth of objects": lambda: b'{"a":' * (4 * _MB),
    "depth of data": lambda: b'{"inputs":[{"name":"image","data":' + b"[" * (16 * _MB),
    "data of empty lists": _tensor(b'"shape":[1,3,8,8],"data":[', b"[]"),
    "data of one number each": _tensor(b'"shape":[1,3,8,8],"data":[', b"[1]"),
    "data of strings": _tensor(b'"shape":[1,3,8,8],"data":[', b'""'),
    "data of flags": _tensor(b'"shape":[1,3,8,8],"data":[', b"true"),
    "data of numbers": _tensor(b'"shape":[1,3,8,8],"data":[', b"1"),
    "numbers of 400 digits": _tensor(b'"shape":[1,3,8,8],"data":[', b"9" * 400),
    "numbers of 20 million digits": lambda: (
        b'{"inputs":[{"name":"image","shape":[1,3,8,8],"datatype":"FP32","data":[0.'
        + b"1" * (20 * _MB)
        + b"]}]}"
    ),
    "a whole number of 20 million digits": lambda: (
        b'{"inputs":[],"parameters":{"a":' + b"1" * (20 * _MB) + b"}}"
    ),
    "exponents beyond all": _tensor(b'"shape":[1,3,8,8],"data":[', b"1e99999999"),
    "a shape of 20 million lengths": _tensor(b'"data":[1],"shape":[', b"1"),
    "a shape of huge lengths": _tensor(b'"data":[1],"shape":[', b"9223372036854775807"),
    "a name of 60 MB": lambda: b'{"' + b"a" * (60 * _MB) + b'":1}',
    "escapes in a string": _fill(b'{"inputs":[],"id":"', b"\\u0000", b'"}'),
    "escapes without end": lambda: b'{"id":"' + b"\\u0041" * (9 * _MB),
    "blanks": lambda: b" " * (60 * _MB) + b"{}",
    "bytes that are no UTF-8": lambda: b'{"id":"' + b"\xff" * (60 * _MB) + b'"}',
    "raw inputs in base64": lambda: (
        b'{"inputs":[{"name":"raw","shape":[1],"datatype":"BYTES","data":["'
        + b"AAAA" * (15 * _MB)
        + b'"]}]}'
    ),
    "raw inputs without number": _fill(
        b'{"inputs":[{"name":"raw","shape":[9],"datatype":"BYTES","data":[', b'"a"', b"]}]}"
    ),
}


def _add(name: str, make: Callable[[], bytes]) -> None:
    @attack(f"JSON: {name}")
    def run(target: Target, tally: Tally) -> None:
        bodies(target, tally, target.infer, make()[: target.body_mb * _MB], _HOUR)


for _name, _make in _BODIES.items():
    _add(_name, _make)


@attack("JSON: empty lists, wrong key", keys=True)
def without_key(target: Target, tally: Tally) -> None:
    body = _BODIES["empty lists in parameters"]()
    bodies(target, tally, target.infer, body, _HOUR, "X-API-Key: wrong")


@attack("JSON: empty lists, 40 connections")
def many(target: Target, tally: Tally) -> None:
    body = _fill(_PARAMETERS, b"[]", _END, 4)()
    bodies(target, tally, target.infer, body, _HOUR, count=40)
