"""Promises broken on purpose: each small patch must be caught by the tests that are named with it."""
