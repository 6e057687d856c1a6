"""Other protocols for the agents, each with a transport of its own."""
