"""Depth estimation: the depth of each pixel."""
