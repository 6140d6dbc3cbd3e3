"""Export a module: trace it, check the program against it, open the dimensions that can vary."""
