"""Other protocols over the server's HTTP."""
