"""`Traces`: a span of OpenTelemetry for each request, with its parts, where somebody collects them.

Only the API is used: which SDK, exporter and sampling there are is for whoever runs the process to
say (``opentelemetry-instrument edgeserve serve ...``). Without the package, or with nobody to
collect, a request costs one look more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from edgeserve import __version__
from edgeserve.serve.figures import Times

__all__ = ["Traces"]

#: The span of the request that is being answered.
_CURRENT: ContextVar[Any] = ContextVar("edgeserve_span", default=None)


class Traces:
    """Spans of requests; all of it does nothing where nobody collects."""

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            self._trace: Any = None
            return
        self._trace, self._propagate = trace, propagate
        self._tracer = trace.get_tracer("edgeserve.serve", __version__)

    def begin(self, name: str, headers: Mapping[bytes, bytes], **attributes: str) -> Any:
        """Begin the span of a request, within the caller's if a ``traceparent`` names that.

        Args:
            name: Of the span: the route.
            headers: By lower-case name; of gRPC the metadata.
            attributes: To be told of it.
        """
        if not self._collected():
            return None
        carrier = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items()}
        span = self._tracer.start_span(
            name,
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        )
        _CURRENT.set(span)
        return span

    def parts(self, times: Times, **attributes: str) -> None:
        """Tell of the current request's parts, which have just ended one after the other."""
        span = _CURRENT.get()
        if span is None or not span.is_recording():
            return
        span.set_attributes(attributes)
        inside = self._trace.set_span_in_context(span)
        at = time.time_ns() - int(1e9 * times.total)
        for name, seconds in (
            ("queue", times.queued),
            ("pre", times.before),
            ("run", times.ran),
            ("post", times.after),
        ):
            part = self._tracer.start_span(name, context=inside, start_time=at)
            at += int(1e9 * seconds)
            part.end(end_time=at)

    def end(self, span: Any, failed: bool, **attributes: str | int) -> None:
        """End a request's span.

        Args:
            span: As `begin` gave it.
            failed: Whether the endpoint is to blame, and not the caller.
            attributes: To be told of it.
        """
        if span is None:
            return
        _CURRENT.set(None)
        span.set_attributes(attributes)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()

    def _collected(self) -> bool:
        """Whether a provider of spans was set; asked each time, since that may come later."""
        trace = self._trace
        return trace is not None and not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
        )
