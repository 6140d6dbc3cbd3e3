"""The report: one HTML file that shows what was found, to a manager first and an engineer below.

It needs nothing but itself: no scripts, no requests, no fonts. It shows pictures from the user's
data, so it belongs inside the team and never into a bundle.
A worker renders it: the verb is `edgeserve.report.request.VERB`.
"""

from edgeserve.report.request import Rendered, ReportRequest

__all__ = ["Rendered", "ReportRequest"]
