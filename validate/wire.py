"""HTTP to an endpoint that stands for the server: the gate's only door to a network.

Requests go where the user's URL says and nowhere else: no proxies, passwords or redirects from the
outside. None is waited for without end, however slowly an answer drips.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeserve.errors import ValidateError

__all__ = ["KEY", "Reply", "Wire"]

#: Environment variable with a key for the endpoint; it stands in no file.
KEY = "EDGESERVE_REFERENCE_KEY"
#: Longest answer that is read.
_MOST = 1 << 30
#: Times a request is sent while the endpoint says that it is busy, and the first pause, seconds.
_TRIES, _PAUSE = 4, 0.2
_BUSY = (429, 503)


@dataclass(frozen=True)
class Reply:
    """A response: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Connections to one server. A context manager; threads may share it.

    Args:
        url: Scheme, host, port and what stands before ``/v2``.
        timeout: Seconds that one request may take. Looked at whenever a piece arrives: one whose
            last piece is late may take as long again.

    Raises:
        ValidateError: EDGE-VALIDATE-046 httpx2 is missing, -048 a key that no header can hold.
    """

    def __init__(self, url: str, timeout: float) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise ValidateError(
                "EDGE-VALIDATE-046",
                f"reference {url}",
                wanted="the package httpx2",
                got="it is not installed",
                hint="pip install 'edgeserve[fallback]'",
            ) from error
        self.url, self._timeout, self._http = url, timeout, httpx2
        self._client = httpx2.Client(
            trust_env=False,
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "edgeserve"} | _key(url),
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str) -> Reply:
        """Ask for a resource; errors as `post`."""
        return self._patiently(lambda: self._once("GET", path, b"", {}))

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send a body; an endpoint that is busy is asked again a little later.

        Raises:
            ValidateError: EDGE-VALIDATE-040 it cannot be reached, -041 it takes too long.
        """
        return self._patiently(lambda: self._once("POST", path, body, headers))

    def _patiently(self, send: Callable[[], Reply]) -> Reply:
        for turn in range(_TRIES - 1):
            reply = send()
            if reply.status not in _BUSY:
                return reply
            time.sleep(_PAUSE * 2**turn)
        return send()

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        end = time.monotonic() + self._timeout
        http = self._http
        try:
            with self._client.stream(
                method, self.url + path, content=body, headers=dict(headers), timeout=self._timeout
            ) as response:
                return self._read(response, end)
        except http.TimeoutException as error:
            raise self._slow() from error
        except (http.HTTPError, http.StreamError, http.InvalidURL, OSError, ValueError) as error:
            raise ValidateError(
                "EDGE-VALIDATE-040",
                f"reference {self.url}",
                wanted="an answer over HTTP",
                got=f"{type(error).__name__}: {error}"[:200],
                hint=f"see that it is up: curl {self.url}/v2",
            ) from error

    def _read(self, response: Any, end: float) -> Reply:
        pieces, length = [], 0
        for piece in response.iter_raw():
            length += len(piece)
            if length > _MOST:
                raise ValueError("an answer of more than 1 GiB")
            if time.monotonic() > end:
                raise self._slow()
            pieces.append(piece)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status_code, headers, b"".join(pieces))

    def _slow(self) -> ValidateError:
        return ValidateError(
            "EDGE-VALIDATE-041",
            f"reference {self.url}",
            wanted=f"an answer within {self._timeout:g} seconds, each time it is asked",
            got="none, or only a part of one",
            hint="see what its log says; name an endpoint that has the model loaded",
        )


def _key(url: str) -> dict[str, str]:
    key = os.environ.get(KEY, "")
    if not key:
        return {}
    if not key.isascii() or not key.isprintable():
        raise ValidateError(
            "EDGE-VALIDATE-048",
            f"reference {url}",
            wanted=f"a key of printable ASCII in {KEY}",
            got="one with other characters",
            hint="set the variable to the key alone",
        )
    return {"authorization": f"Bearer {key}"}
