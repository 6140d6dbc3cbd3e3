"""The demo: a real image tagger, real photos for it, and the server that it must agree with."""
