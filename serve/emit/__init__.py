"""What `edgeserve serve` does here, written down for where it is to run: images and manifests.

    edgeserve serve tagger.edge --emit docker -o deploy
    edgeserve serve tagger.edge --emit kubernetes -o deploy --image registry.example.com/tagger:1

Nothing is built or sent anywhere: files are written to a folder, for you to read and to commit.
"""

from edgeserve.serve.emit.deployment import KINDS, Deployment
from edgeserve.serve.emit.write import emit

__all__ = ["KINDS", "Deployment", "emit"]
