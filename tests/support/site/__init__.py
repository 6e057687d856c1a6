"""The documentation site: docs/ and what is generated from the code, built strictly."""
