"""Any LangGraph graph, recorded."""
