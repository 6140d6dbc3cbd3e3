"""Proof that the gate works: good and damaged artifacts, harm measured by an independent oracle.

``make corpus`` runs it; ``docs/explanation/corpus.md`` says what is measured and how. Nothing in
here was written with the gate's code in view.
"""
