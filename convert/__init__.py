"""From a source to candidates: exported once, then converted to each format in its own process.

The verbs that workers run are `edgeserve.convert.source.export_source`,
`edgeserve.convert.source.read_back` and `edgeserve.convert.target.convert_target`. Nothing is
judged here: `edgeserve.api.convert` and the command line have every candidate validated before it
counts as an artifact.
"""

from edgeserve.convert.request import ExportRequest, ReadBackRequest, TargetRequest, parse_source

__all__ = ["ExportRequest", "ReadBackRequest", "TargetRequest", "parse_source"]
