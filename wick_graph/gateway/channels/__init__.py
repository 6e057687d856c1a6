"""Channels: each speaks with one platform, and holds nothing that must survive the process."""
