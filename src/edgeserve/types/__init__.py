"""The values that travel between the rooms: frozen, validated, with JSON round-trip laws."""
