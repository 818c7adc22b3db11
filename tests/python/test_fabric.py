# SPDX-License-Identifier: MIT
"""Sharing over a fabric is said to work only where creating, exporting and importing do."""

import json
import os
import subprocess
import sys

import pytest
from test_regions import variables

CLAIMS = "the driver says that it is there, and {} fails: {}"


@pytest.mark.parametrize(
    "setting, found",
    [
        (None, "none"),
        ("works", "works"),
        ("create", CLAIMS.format("create", "CUDA_ERROR_NOT_SUPPORTED")),
        ("export", CLAIMS.format("export", "CUDA_ERROR_NOT_SUPPORTED")),
        ("import", CLAIMS.format("import", "CUDA_ERROR_NOT_PERMITTED")),
    ],
)
def test_what_the_driver_claims_is_tried(setting, found):
    environment = {**os.environ, **variables(), **({"FAKE_CUDA_FABRIC": setting} if setting else {})}

    def said(*more):
        return subprocess.run(
            [sys.executable, "-B", "-m", "reveille", *more],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    cuda = json.loads(said("--json"))["backends"][0]
    assert cuda["usable"], cuda["why"]
    assert [device["fabric"] for device in cuda["devices"]] == [found] * len(cuda["devices"])
    assert (f"sharing over the fabric: {found}" in said()) == (found != "none")
