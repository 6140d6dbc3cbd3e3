"""An ONNX graph as a PyTorch module: the route from an ONNX file to the other formats.

One table (`edgeserve.backends.torch.onnx_import.table`) says for each operator what PyTorch does
instead; its entries stand in one file a family. What has none is refused by name, and what comes
out is compared with ONNX Runtime before anybody calls it the same model.
"""

from __future__ import annotations

from edgeserve.backends.torch.onnx_import.build import import_file

__all__ = ["import_file"]
