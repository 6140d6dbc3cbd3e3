"""The reference: the exported program, a Python callable, or a live endpoint."""
