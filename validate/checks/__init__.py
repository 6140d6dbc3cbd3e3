"""Checks that an artifact must pass whatever its precision, and checks of the reference itself."""
