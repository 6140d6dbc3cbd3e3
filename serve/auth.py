"""API keys: compared in constant time, and each with a quota of its own."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path

from edgeserve.errors import ServeError
from edgeserve.serve.request_errors import rejected


class ApiKey:
    """A key's name and its quota, a bucket that fills with time.

    Args:
        name: For logs and metrics; the key itself is kept as a hash only.
        digest: sha256 of the key.
        rate: Requests a second; None: as many as come.
    """

    def __init__(self, name: str, digest: bytes, rate: float | None = None) -> None:
        self.name, self.digest, self.rate = name, digest, rate
        self._held, self._at = self._most, 0.0

    @property
    def _most(self) -> float:
        return max(1.0, self.rate or 1.0)

    def take(self, now: float) -> float:
        """Take one request out; else seconds until there is one."""
        if self.rate is None:
            return 0.0
        self._held = min(self._most, self._held + (now - self._at) * self.rate)
        self._at = now
        if self._held < 1:
            return (1 - self._held) / self.rate
        self._held -= 1
        return 0.0


class ApiKeys:
    """Says whose request it is.

    Args:
        keys: All that are valid; empty: the endpoint is open.
    """

    def __init__(self, keys: list[ApiKey], clock: Callable[[], float] = time.monotonic) -> None:
        self._keys, self._clock = keys, clock

    def check(self, headers: dict[bytes, bytes]) -> str:
        """The name of the key that a request carries; empty where none is asked for.

        Every key is compared, whichever fits, so that time tells nothing.

        Raises:
            RequestRejected: EDGE-SERVE-023 no key or a wrong one, -022 its quota is used up.
        """
        if not self._keys:
            return ""
        given = hashlib.sha256(_key_of_request(headers)).digest()
        fits = [key for key in self._keys if hmac.compare_digest(key.digest, given)]
        if not fits:
            wanted, got = "a valid API key", "none, or a wrong one"
            raise rejected("EDGE-SERVE-023", "request", wanted, got)
        if wait := fits[0].take(self._clock()):
            quota = "no more requests than its quota"
            raise rejected("EDGE-SERVE-022", "API key", quota, "more", retry_after=wait)
        return fits[0].name


def _key_of_request(headers: dict[bytes, bytes]) -> bytes:
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")


def read_keys(path: str | None) -> list[ApiKey]:
    """Read a file of keys: one ``name key [requests per second]`` a line; ``#`` begins a remark.

    Raises:
        ServeError: EDGE-SERVE-004, it cannot be read, or a line is no key.
    """
    if path is None:
        return []
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _key_file_error(path, "it cannot be read") from error
    entries = [(i, line.split()) for i, line in enumerate(lines, 1)]
    keys = [_parse_line(path, i, words) for i, words in entries if words and words[0][0] != "#"]
    if not keys:
        raise _key_file_error(path, "it holds no key")
    return keys


def _parse_line(path: str, i: int, words: list[str]) -> ApiKey:
    if len(words) not in (2, 3) or len(words[1]) < 16:
        raise _key_file_error(path, f"line {i} is no key of 16 characters or more with its name")
    try:
        rate = float(words[2]) if words[2:] else None
    except ValueError:
        rate = 0.0
    if rate is not None and not 0 < rate < float("inf"):
        raise _key_file_error(path, f"line {i} has a quota that is no number above 0")
    return ApiKey(words[0], hashlib.sha256(words[1].encode()).digest(), rate)


def _key_file_error(path: str, got: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-004",
        f"key file {path}",
        got=got,
        hint="one `name key [requests per second]` a line, keys of 16 characters or more",
    )
