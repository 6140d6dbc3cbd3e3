"""Measure what the project promises."""
