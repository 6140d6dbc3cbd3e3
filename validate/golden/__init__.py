"""Golden cases: inputs with the reference's decisions, chosen so that no device may differ."""
