"""Synthetic inputs: images, audio, texts, and tensors at the edges."""
