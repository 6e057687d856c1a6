"""State, requests, usage, moments, stopping, the bridge between sync and async, redaction."""
