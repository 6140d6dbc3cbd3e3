"""Conversions as people write them without edgeserve: what its own cost is compared with."""
