"""Shades of the accent colour that are readable on light and dark backgrounds (WCAG 2.2, 1.4.3)."""

import re
from typing import Final, NamedTuple

from ..errors import ConfigurationError

_HEX: Final = re.compile(r"#[0-9A-Fa-f]{6}")
_LIGHT: Final = (0xF6, 0xF7, 0xF9)
_DARK: Final = (0x1D, 0x20, 0x27)
_ENOUGH: Final = 4.6
"""The ratio of luminances that text needs is 4.5; shades are rounded to 8 bits."""
_STEPS: Final = 40

Colour = tuple[int, int, int]


class Palette(NamedTuple):
    """The colours of a dashboard as ``#rrggbb``."""

    accent: str
    on_accent: str
    """Black or white, the more readable on the accent."""
    link_light: str
    """The accent as text on a light background."""
    link_dark: str
    """The accent as text on a dark background."""


def palette_of(accent: str) -> Palette:
    """Return the shades of an accent colour.

    Raises:
        ConfigurationError: the colour is not ``#rrggbb``.
    """
    if not _HEX.fullmatch(accent):
        raise ConfigurationError(f"accent is {accent!r}: write a colour as '#rrggbb'.")
    colour = (int(accent[1:3], 16), int(accent[3:5], 16), int(accent[5:7], 16))
    white, black = (255, 255, 255), (0, 0, 0)
    on_accent = white if _ratio(colour, white) >= _ratio(colour, black) else black
    return Palette(
        _text(colour),
        _text(on_accent),
        _text(_readable(colour, _LIGHT, black)),
        _text(_readable(colour, _DARK, white)),
    )


def _readable(colour: Colour, background: Colour, towards: Colour) -> Colour:
    """Return the nearest mixture of a colour with black or white that is readable."""
    for step in range(_STEPS + 1):
        r, g, b = (round(c + (t - c) * step / _STEPS) for c, t in zip(colour, towards, strict=True))
        if _ratio((r, g, b), background) >= _ENOUGH:
            return r, g, b
    return towards


def _ratio(one: Colour, other: Colour) -> float:
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    """Return the relative luminance of WCAG 2.2."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _text(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
