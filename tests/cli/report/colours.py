# SPDX-License-Identifier: MIT
"""
How well people tell two colours apart: CIEDE2000 (Sharma, Wu, Dalal 2005), for normal sight and the three kinds of
colour blindness at their full strength (Machado, Oliveira, Fernandes 2009).
"""
import math

SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = tuple(map(sum, TO_XYZ))
ANSI_STEPS = (0, 95, 135, 175, 215, 255)


def of_css(text):
    return tuple(int(text[i:i + 2], 16) / 255 for i in (1, 3, 5))


def of_ansi(code):
    """Of the 256 colours of a terminal those that are the same everywhere: 16 and above."""
    if code >= 232:
        return ((8 + 10 * (code - 232)) / 255,) * 3
    code -= 16
    return tuple(ANSI_STEPS[part] / 255 for part in (code // 36, code // 6 % 6, code % 6))


def times(matrix, vector):
    return tuple(sum(a * b for a, b in zip(row, vector)) for row in matrix)


def linear(colour):
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)


def luminance(colour):
    return times(TO_XYZ, linear(colour))[1]


def contrast(a, b):
    """As WCAG has it: 1 to 21."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(colour, sight):
    seen = tuple(min(1, max(0, c)) for c in times(SIGHTS[sight], linear(colour)))
    x, y, z = ((t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116)
               for t in (value / white for value, white in zip(times(TO_XYZ, seen), WHITE)))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(first, second):
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    shift = 0.5 * (1 - math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7)))
    a1, a2 = a1 * (1 + shift), a2 * (1 + shift)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    dl, dc, dh = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    l, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    t = (1 - 0.17 * math.cos(math.radians(h - 30)) + 0.24 * math.cos(math.radians(2 * h)) +
         0.32 * math.cos(math.radians(3 * h + 6)) - 0.2 * math.cos(math.radians(4 * h - 63)))
    sl = 1 + 0.015 * (l - 50) ** 2 / math.sqrt(20 + (l - 50) ** 2)
    sc, sh = 1 + 0.045 * c, 1 + 0.015 * c * t
    rotation = (-2 * math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)) *
                math.sin(math.radians(60 * math.exp(-((h - 275) / 25) ** 2))))
    return math.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rotation * dc / sc * dh / sh)


def nearest(colours):
    """The two that are hardest to tell apart: distance, sight, and both."""
    return min((ciede2000(lab(a, sight), lab(b, sight)), sight, a, b)
               for sight in SIGHTS for i, a in enumerate(colours) for b in colours[:i])
