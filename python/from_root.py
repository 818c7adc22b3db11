# SPDX-License-Identifier: MIT
"""Build backend of this folder: runs scikit-build-core at the root of the repository.

The package needs the C sources, which are outside this folder. So its only description is
pyproject.toml at the root, and every PEP 517 hook runs there.
"""

import os
from pathlib import Path

os.chdir(Path(__file__).resolve().parents[1])

from scikit_build_core.build import *  # noqa: E402, F403
