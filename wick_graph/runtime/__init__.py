"""Context of the nodes: the run and its agent, the ledger of tool calls, open questions."""
