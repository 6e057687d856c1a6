"""The move of modules by a map, and the proof that it loses nothing."""
