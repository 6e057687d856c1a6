"""The red team that stays: fuzzers with an oracle for answers and one for processor time."""
