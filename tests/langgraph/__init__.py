"""LangGraph's own tests, run with `SqlSaver` beside LangGraph's SQLite saver: `make test-langgraph`."""
