"""For developers, not installed: demo, benchmarks, corpus of damaged artifacts, model zoo."""
