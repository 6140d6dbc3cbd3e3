"""Numeric comparison of output tensors, field by field."""
