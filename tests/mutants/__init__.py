"""Promises broken on purpose: the tests that are named with each small patch must catch it."""
