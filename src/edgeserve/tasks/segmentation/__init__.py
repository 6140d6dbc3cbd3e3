"""Image segmentation: the class of each pixel."""
