"""The endpoint: the same bundles behind the Open Inference Protocol, for a device's fallback.

    from edgeserve.serve import Options, serve

    serve(Options(bundles=("tagger.edge",), port=8080))

`serve` blocks until SIGTERM or Ctrl-C and drains before it returns. `App` is the ASGI application
alone, for a server of your own choosing.
"""

from edgeserve.serve.app import App
from edgeserve.serve.options import ServeOptions
from edgeserve.serve.server import serve

__all__ = ["App", "ServeOptions", "serve"]
