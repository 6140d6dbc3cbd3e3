"""What tests of several rooms share; on the path by ``pythonpath`` in pyproject.toml."""
