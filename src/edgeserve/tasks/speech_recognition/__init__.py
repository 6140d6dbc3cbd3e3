"""Automatic speech recognition: the edits between two token sequences."""
