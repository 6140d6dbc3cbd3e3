"""Sounds to tensors: WAV files or samples, resampling, and the log-mel spectrum."""
