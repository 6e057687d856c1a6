"""The paths of the server, by what they are about."""
