"""The one error that data modules raise for a user's mistake."""


class DataError(ValueError):
    """Data that can't be used: what was expected, what was received, what to do."""
