"""What nodes work with: the run and its agent, the ledger of tool calls, open questions."""
