"""Requests of a browser that is on another page: load and unload across sites."""

from __future__ import annotations

import itertools

from dev.benchmarks.attacks.registry import Tally, Target, attack
from dev.benchmarks.attacks.wire import flood, post


def _across(name: str, verb: str, *lines: str, host: str = "localhost") -> None:
    @attack(f"control: {name}")
    def run(target: Target, tally: Tally) -> None:
        request = post(f"/v2/repository/models/{target.model}/{verb}", b"", *lines)
        request = request.replace(b"Host: localhost", f"Host: {host}:{target.port}".encode())
        flood(target, tally, 4, lambda: itertools.repeat(request), wait=True)
        if tally.statuses["200"]:
            tally.wrong.append(f"{verb} answered 200 to a page of another site")


_EVIL = "Origin: http://evil.example"
_across("unload from another site", "unload", _EVIL, "Content-Type: text/plain")
_across("unload from a sandbox", "unload", "Origin: null")
_across("unload as `evil.example`, a name bound to this machine", "unload", host="evil.example")
_across("loads without number from another site", "load", _EVIL)
_across("unload by a form", "unload", "Sec-Fetch-Site: cross-site", _EVIL)


@attack("control: loads without number from this machine")
def loads(target: Target, tally: Tally) -> None:
    request = post(f"/v2/repository/models/{target.model}/load", b"")
    flood(target, tally, 20, lambda: itertools.repeat(request), wait=True)


@attack("control: bodies of 64 KB of lists to load")
def bodies_of_load(target: Target, tally: Tally) -> None:
    body = b'{"parameters":{"a":[' + b"[]," * 20_000 + b"[]]}}"
    request = post(f"/v2/repository/models/{target.model}/load", body)
    flood(target, tally, 20, lambda: itertools.repeat(request), wait=True)
