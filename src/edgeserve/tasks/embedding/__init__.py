"""Feature extraction: a vector, whose nearest neighbour in a set is its decision."""
