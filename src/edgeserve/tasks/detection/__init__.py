"""Object detection: boxes, matched by class and overlap (IoU)."""
