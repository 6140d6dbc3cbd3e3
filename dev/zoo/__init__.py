"""Small models of many kinds, each converted to every format, run, and compared with PyTorch."""
