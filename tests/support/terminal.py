# SPDX-License-Identifier: MIT
"""What a program has printed on a pseudo-terminal."""

import os
import time


def read_terminal(terminal):
    """All bytes until nobody has the other side. Linux may say so a moment before the last of them arrive."""
    text, hang_ups = b"", 0
    while hang_ups < 5:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            hang_ups += 1
            time.sleep(0.01)
            continue
        if not part:
            break
        text += part
    return text
