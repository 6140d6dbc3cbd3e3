"""Voice activity: speech or not in each frame, at a probability of 0.5."""
