"""Ways to spoil an artifact.

In its file, in the network it is made of, in its processing, or by the quantizer;
`dev.corpus.kinds` lists them all.
"""
