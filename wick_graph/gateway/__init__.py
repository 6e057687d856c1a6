"""Agents behind chats: a durable inbox and outbox, channels, memory, heartbeat and cron."""
