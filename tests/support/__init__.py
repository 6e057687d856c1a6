"""Real parts that tests run against."""
