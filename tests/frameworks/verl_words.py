# SPDX-License-Identifier: MIT
"""Checks that verl's configuration accepts the options that a page passes to it, with their values. Needs verl, but no GPU. Nothing is
trained.

    python verl_words.py docs/guides/adopt/verl.md
"""

import importlib.util
import pathlib
import shlex
import sys

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

CONFIG = pathlib.Path(importlib.util.find_spec("hydra").origin).parents[1] / "verl/trainer/config"
COMMAND = "python -m verl.trainer.main_ppo "


def main():
    lines = [line for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if line.startswith(COMMAND)]
    assert lines, f"{sys.argv[1]} has no line that begins with {COMMAND}"
    with initialize_config_dir(str(CONFIG), version_base=None):
        for line in lines:
            words = [word for word in shlex.split(line, comments=True)[3:] if word != "..."]
            assert words, line
            config = compose("ppo_trainer", overrides=words)
            for word in words:
                name, value = word.lstrip("+").split("=", 1)
                assert OmegaConf.select(config, name) == value.strip("'"), word
                print(f"taken: {word}")
    print(f"PASS {len(lines)} lines")


main()
