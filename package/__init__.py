"""Package: from a private workspace to one sealed, public ``.edge`` file.

What goes in is an allow-list: artifacts that did not fail, the golden cases that prove them on a
device, the model's identity, and a manifest with the reports in numbers. The reference, the
samples, logs and everything else of the workspace stay where they are.
"""

from __future__ import annotations

from edgeserve.package.writer import Packaged, package

__all__ = ["Packaged", "package"]
