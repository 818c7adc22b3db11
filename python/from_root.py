# SPDX-License-Identifier: MIT
"""Build backend of this folder: scikit-build-core, run at the root of the repository.

The package needs the C sources, which lie outside this folder, so there is one description of it,
in pyproject.toml at the root. Every hook of PEP 517 goes there.
"""

import os
from pathlib import Path

os.chdir(Path(__file__).resolve().parents[1])

from scikit_build_core.build import *  # noqa: E402, F403
