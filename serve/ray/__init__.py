"""The endpoint inside Ray Serve: the same application, its models spread over a cluster.

    serve run edgeserve.serve.ray:build bundles=tagger.edge,minilm.edge replicas=2

or `edgeserve serve tagger.edge --engine ray`. What answers is the `App` of `edgeserve.serve`, in as
many replicas as the load asks for; importing this loads no Ray.
"""

from edgeserve.serve.ray.application import build, run
from edgeserve.serve.ray.options import Cascade, RayOptions, ray_options

__all__ = ["Cascade", "RayOptions", "build", "ray_options", "run"]
