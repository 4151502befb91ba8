"""Amounts as people read them: short."""


def short(number: float) -> str:
    """A count in at most five characters.

    Examples
    --------
    >>> short(87), short(12_345), short(999_960), short(2_000_000_000)
    ('87', '12.3k', '1M', '2G')
    """
    for sign in ("", "k", "M", "G"):
        number = float(f"{number:.3g}")
        if number < 1000.0:
            return f"{number:g}{sign}"
        number /= 1000.0
    return f"{number:.3g}T"


def duration(seconds: float) -> str:
    """Time that has passed.

    Examples
    --------
    >>> duration(3.14), duration(200), duration(3700)
    ('3.1 s', '3 min 20 s', '1 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def about(seconds: float) -> str:
    """Time that something will take, no finer than anybody can know.

    Examples
    --------
    >>> about(0.2), about(3.14), about(47), about(95), about(4_000), about(200_000)
    ('1 s', '3 s', '50 s', '1.6 min', '1.1 h', '2.3 days')
    """
    for unit, size, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24)):
        amount = seconds / size
        digits = 2 if amount < 3 and size > 1 else 1
        rounded = float(f"{amount:.{digits}g}")
        if rounded < most:
            return f"{max(rounded, 1):g} {unit}"
    return f"{seconds / 86400:.2g} days"
