"""Random PyTorch programs, converted to each format and compared with eager PyTorch."""
