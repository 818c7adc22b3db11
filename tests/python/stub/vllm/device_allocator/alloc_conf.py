# SPDX-License-Identifier: MIT
"""PyTorch's settings for a block."""

import contextlib

import torch


@contextlib.contextmanager
def non_expandable_allocations():
    settings = torch.cuda.memory.settings
    before, settings["expandable_segments"] = settings["expandable_segments"], False
    try:
        yield
    finally:
        settings["expandable_segments"] = before
