"""From a source to candidates: exported once, then converted to each format in its own process.

The verbs that workers run are `edgeserve.convert.source.export_source` and
`edgeserve.convert.target.convert_target`. Nothing is judged here: `edgeserve.api.convert` and the
command line have every candidate validated before it counts as an artifact.
"""

from edgeserve.convert.request import ExportRequest, TargetRequest, parse_source

__all__ = ["ExportRequest", "TargetRequest", "parse_source"]
