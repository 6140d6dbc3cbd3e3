"""The independent oracle: raw runtimes, its own processing, decisions, and bounds on harm.

It shares no code with edgeserve but the Core ML interpreter, as no other engine runs those packages
here. What counts as decided stands in ``docs/explanation/corpus.md``.
"""
