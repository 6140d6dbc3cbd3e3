"""An exported program: its files, session, graph and hash, and checks of a foreign one."""
