"""Tools that check a restructuring of the tree, and its table of moves."""
