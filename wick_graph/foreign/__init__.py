"""Any LangGraph graph recorded: its run, its tasks, its models and tools, and its checkpoints."""
