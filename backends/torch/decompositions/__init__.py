"""Operators that a format does not know, computed by operators that it knows."""
