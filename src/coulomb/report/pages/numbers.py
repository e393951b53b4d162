"""Numbers as text: one precision per quantity on every page."""

import math

NARROW = "\u202f"  # a narrow no-break space


def percent(share: float | None, digits: int = 1) -> str:
    """0.9342 → '93.4 %'."""
    return "–" if share is None else f"{100 * share:.{digits}f}{NARROW}%"


def signed(number: float, digits: int = 1) -> str:
    """−4.72 → '−4.7', for differences."""
    return f"{number:+.{digits}f}".replace("-", "−")


def count(number: float | None) -> str:
    """12345 → '12,345'."""
    return "–" if number is None else f"{round(number):,}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """'1 image', '2 images'."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def duration(seconds: float | None) -> str:
    """'48 s', '12 min', '3 h 20 min'."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{max(1, round(seconds))}{NARROW}s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes}{NARROW}min"
    hours, rest = divmod(minutes, 60)
    return f"{hours}{NARROW}h" + (f" {rest}{NARROW}min" if rest else "")


def significant(number: float | None, digits: int = 3) -> str:
    """6.2364 → '6.24': ``digits`` significant digits, with an exponent only below 0.0001 and from a million."""
    if number is None or not math.isfinite(number):
        return "–"
    if number == 0:
        return "0"
    size = math.floor(math.log10(abs(number)))
    if size < -4 or size >= 6:
        mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}·10{superscript(int(exponent))}".replace("-", "−")
    return f"{number:,.{max(0, digits - 1 - size)}f}".replace("-", "−")


def axis_value(x: float | None) -> str:
    """An epoch or a step: '30', '1,200', '2.50'."""
    return significant(x) if x is None or x % 1 else f"{x:,.0f}".replace("-", "−")


def trim_zeros(text: str) -> str:
    """'6.00' → '6' and '50.0 %' → '50 %', for tick labels."""
    number, space, unit = text.partition(NARROW)
    if "." in number and "·" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + space + unit


def superscript(number: int) -> str:
    """−3 → '⁻³'."""
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def shorten(text: str, limit: int = 90) -> str:
    """Leaves out the middle of a long name: its beginning and its end both carry information."""
    text = str(text)
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]}…{text[-limit // 3 :]}"
