"""Proof that the gate sees a wrong lowering and names the op: sixty of them, seeded by hand.

``make mutants`` runs it. Each mutant is one lowering of ours made wrong (a rounding, a sign, a
cast, a mask, an axis or a reduction) and a small program that uses it.
"""
