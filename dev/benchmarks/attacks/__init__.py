"""Attacks on a whole endpoint, each with the memory and the latency that it costs others."""
