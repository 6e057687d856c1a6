"""SQLite or PostgreSQL: schema, statements, transactions, and how a store is opened."""
