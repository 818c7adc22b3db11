#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Parameters of models as `reveille model` counts them beside those of the classes in transformers:
model_counts.py COMMAND [CONFIG.json...], by default all of tests/data/configs.

The classes are built on torch's meta device, which takes no memory. Of a config without vision_config
the language model and its head count. A line a config; exit status 1 if two counts differ, 77
without torch and transformers. A family that this transformers does not have is named and left out.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simcuda" / "programs"))
from within import enclosed  # noqa: E402

# Published with code of their own, which is that of another family.
CLASS_OF = {"kimi_k2": "deepseek_v3"}
CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "data" / "configs"


def counted_here(command, path):
    """Sizes mean nothing here: they are given, so that every model has room."""
    with tempfile.TemporaryDirectory() as folder:
        words = [command, "model", path, "--given", "weights=1GiB", "--given", "kv_cache=1GiB",
                 "--weights-dtype", "bf16", "-o", folder + "/step.rvt"]
        made = subprocess.run(words, capture_output=True, text=True)
    found = re.search(r", (\d+) parameters;", made.stdout)
    if found is None:
        raise SystemExit(f"{path}: {made.stderr.strip()}")
    return int(found[1])


def build(path):
    """The class of a config, without memory and quantization; None: there is none."""
    import torch
    import transformers
    with tempfile.TemporaryDirectory() as folder:
        keys = json.loads(path.read_text())
        keys["model_type"] = CLASS_OF.get(keys["model_type"], keys["model_type"])
        keys = enclosed(keys)
        pathlib.Path(folder, "config.json").write_text(json.dumps(keys))
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        except ValueError:
            return None
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    auto = transformers.AutoModelForCausalLM
    if "vision_config" in keys or type(config) not in auto._model_mapping:
        auto = transformers.AutoModelForImageTextToText
    with torch.device("meta"):
        if type(config).__name__ == "Gemma3nConfig":  # its towers are another package's
            return transformers.AutoModelForCausalLM.from_config(config.get_text_config())
        return auto.from_config(config)


def is_of_text(name):
    return "language_model" in name or "lm_head" in name


def counted_there(model, with_tower):
    """Parameters, tied ones once, and buffers that a checkpoint has (DeepSeek's router biases)."""
    parts = not with_tower and any("language_model" in name for name, _ in model.named_parameters())
    saved = model.state_dict().keys()
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name in saved]
    seen = {}
    for name, tensor in [*model.named_parameters(), *buffers]:
        if not parts or is_of_text(name):
            seen[id(tensor)] = tensor.numel()
    return sum(seen.values())


def main(arguments):
    if not arguments:
        print(__doc__.strip())
        return 2
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"SKIP: {error}")
        return 77
    print("transformers", transformers.__version__, "torch", torch.__version__)
    differ = 0
    paths = [pathlib.Path(each) for each in arguments[1:]] or sorted(CONFIGS.glob("*.json"))
    if not paths:
        raise SystemExit(f"{CONFIGS}: no configs")
    for path in paths:
        here, model = counted_here(arguments[0], path), build(path)
        if model is None:
            family = json.loads(path.read_text())["model_type"]
            print(f"{path.stem}: {here}; {family} is not in this transformers")
            continue
        there = counted_there(model, "vision_config" in json.loads(path.read_text()))
        verdict = "the same" if here == there else "DIFFERENT"
        print(f"{path.stem}: {here}, {type(model).__name__} {there}: {verdict}", flush=True)
        differ += here != there
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
