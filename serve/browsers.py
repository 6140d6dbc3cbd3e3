"""What web pages may ask of the endpoint.

A browser reaches whatever its machine reaches, for any page that it shows. A page of a stranger
can post to an endpoint on this machine without a question (no preflight), and after it has pointed
a name of its own at 127.0.0.1 (DNS rebinding) it can read the answers too. What gives a page away
are the headers that a browser does not let it choose: Origin and Host.
"""

from __future__ import annotations

import ipaddress
import re

from edgeserve.environment import is_loopback
from edgeserve.serve.http import Exchange
from edgeserve.serve.options import ServeOptions
from edgeserve.serve.request_errors import rejected

#: Routes that change what is served.
_CONTROL = ("load", "unload")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?")
_ALLOWED = (
    b"authorization, content-encoding, content-type, inference-header-content-length, x-api-key,"
    b" x-request-deadline-ms, x-request-id"
)
_EXPOSED = (
    b"inference-header-content-length, retry-after, retry-after-ms, x-cold-start-ms, x-model-id,"
    b" x-request-id"
)


class BrowserRules:
    """Which pages may ask, and what their browsers are told.

    Args:
        options: Of the endpoint.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._origins = {origin.encode() for origin in options.cors_origins}
        self._local = options.keys is None and is_loopback(options.host)
        self._host = options.host.lower()

    def admit(self, exchange: Exchange) -> bool:
        """Tell the browser of an allowed page that it may read; whether it asks just that.

        With nobody on the list nothing is said, and so nothing is allowed.
        """
        origin = exchange.headers.get(b"origin", b"")
        if origin not in self._origins:
            return False
        exchange.extra = [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]
        asks = b"access-control-request-method" in exchange.headers
        if exchange.method != "OPTIONS" or not asks:
            return False
        exchange.extra += [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", _ALLOWED),
            (b"access-control-max-age", b"600"),
        ]
        return True

    def check(self, exchange: Exchange, route: str) -> None:
        """Refuse pages that nobody allowed.

        Raises:
            RequestRejected: EDGE-SERVE-029, the request comes from such a page, or for another
                host than this machine.
        """
        origin = exchange.headers.get(b"origin")
        if route in _CONTROL and origin is not None and origin not in self._origins:
            wanted = "no web page, or one of --cors-origin"
            raise rejected("EDGE-SERVE-029", "header Origin", wanted, "another")
        host = exchange.headers.get(b"host")
        if self._local and host is not None and not self._is_here(host.decode("latin-1").lower()):
            wanted = "an address of this machine, or localhost"
            raise rejected("EDGE-SERVE-029", "header Host", wanted, "another name")

    def _is_here(self, given: str) -> bool:
        """Whether nobody but this machine can be meant: an IP address cannot be rebound."""
        found = _HOST.fullmatch(given.strip())
        name = found[1].strip("[]") if found else ""
        if name in ("localhost", self._host) or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
