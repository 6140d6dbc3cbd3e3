"""Statistics: bounds on rates and paired tests of differences."""
