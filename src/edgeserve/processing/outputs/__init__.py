"""Model outputs to records: output steps, and a reader for each kind of task."""
