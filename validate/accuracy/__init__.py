"""Task metrics against ground truth, for the reference and the artifact."""
