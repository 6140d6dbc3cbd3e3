"""Text generation: the token at each position."""
