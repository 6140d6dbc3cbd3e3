"""What a file could not keep of the sizes that the source declares, in words."""

from __future__ import annotations

from collections.abc import Iterator

from edgeserve.types.artifact import Artifact
from edgeserve.types.manifest import Manifest
from edgeserve.types.tensors import Signature

__all__ = ["fixed_sizes"]


def fixed_sizes(artifact: Artifact, manifest: Manifest) -> Iterator[str]:
    """One text for each dimension that the source leaves free and the file does not.

    The batch is left out: a file that takes one input at a time is fed one by one. So are lengths
    up to which the file's inputs may be padded, as long as they reach the declared end.
    """
    signature = manifest.signature
    for dim, sizes in _fixed(artifact, signature).items():
        low, high = signature.dims[dim]
        if not low < high or (dim in _padded(manifest) and max(sizes) >= high):
            continue
        listed = ", ".join(str(size) for size in sorted(sizes))
        if dim in _padded(manifest):
            yield f"{dim!r} is padded to {listed} and goes no further (declared {low} to {high})"
        else:
            yield f"{dim!r} is fixed at {listed} (declared {low} to {high})"


def _fixed(artifact: Artifact, signature: Signature) -> dict[str, set[int]]:
    """The sizes that each free dimension has in the file; nothing of those free in it too."""
    found: dict[str, set[int]] = {}
    free = {signature.batch_dim}
    for io in artifact.buckets or (artifact.io,):
        for ours, theirs in zip(signature.inputs, io.inputs, strict=False):
            for dim, size in zip(ours.shape, theirs.shape, strict=False):
                if isinstance(dim, str) and isinstance(size, int):
                    found.setdefault(dim, set()).add(size)
                elif isinstance(dim, str):
                    free.add(dim)
    return {dim: sizes for dim, sizes in found.items() if dim not in free}


def _padded(manifest: Manifest) -> set[str]:
    """Dimensions whose inputs may be padded to a file's size."""
    padding = manifest.processing.padding
    padded = {
        dim
        for spec in manifest.signature.inputs
        if spec.name in padding
        for dim in spec.shape
        if isinstance(dim, str)
    }
    return padded | set(manifest.signature.padded)
