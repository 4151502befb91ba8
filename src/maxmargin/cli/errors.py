"""Errors of the command line."""


class UsageError(ValueError):
    """Options that cannot be, or do not go together."""


_IN_PYTHON = {
    'pass encoding="latin-1"': "give --encoding latin-1",
    "unless multilabel=True": "unless with --task multilabel",
    "give tag_column=None if there are no tags": "there must be one for the tags, too",
    "tag_column=": "--tag-column ",
    "give another, or None if there are no tags": "give another",
}
"""What readers advise, as it is said here."""


def sentence(error: Exception) -> str:
    """An error in words of the command line, without numbers of the system."""
    if isinstance(error, OSError) and error.strerror is not None:
        place = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror}{place}."
    text = str(error) or type(error).__name__
    for python, here in _IN_PYTHON.items():
        text = text.replace(python, here)
    return text
