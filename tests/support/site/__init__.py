"""The documentation site: docs/ and what is generated from the code, built strictly."""


class SiteError(Exception):
    """The site cannot be built: the fault, and the remedy."""
