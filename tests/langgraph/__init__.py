"""`make test-langgraph`: LangGraph's own tests, with `SqlSaver` beside LangGraph's SQLite saver."""
