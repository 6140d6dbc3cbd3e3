"""Changed decisions (flips), counted by input and by group."""
