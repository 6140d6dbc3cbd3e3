"""Diagnose a failure: the user's own line, the module, the operator, and a replacement."""
