"""State that a module keeps between calls: attributes, buffers, random number generators."""
