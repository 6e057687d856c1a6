"""A step saved, read, listed, and what is known of a thread meanwhile."""
