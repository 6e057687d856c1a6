"""Serve agents without HTTP: tenants, detached runs, the numbered log of events."""
