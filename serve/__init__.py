"""The endpoint: the same bundles behind the Open Inference Protocol, for a device's fallback.

    from edgeserve.serve import ServeOptions, serve

    serve(ServeOptions(bundles=("tagger.edge",), port=8080))

`serve` blocks until SIGTERM or Ctrl-C and drains before it returns. `App` is the ASGI application
alone, for a server of your own choosing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeserve.serve.options import ServeOptions

if TYPE_CHECKING:
    from edgeserve.serve.app import App
    from edgeserve.serve.server import serve

__all__ = ["App", "ServeOptions", "serve"]


def __getattr__(name: str) -> Any:
    """Load the server when it is wanted: the options alone are read for ``--help``."""
    if name == "App":
        from edgeserve.serve.app import App

        return App
    if name == "serve":
        from edgeserve.serve.server import serve

        return serve
    raise AttributeError(f"module 'edgeserve.serve' has no attribute {name!r}")
