"""A server without HTTP: tenants, detached runs, numbered event logs."""
