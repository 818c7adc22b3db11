# SPDX-License-Identifier: MIT
"""`reveille weights CONFIG DIR`: a checkpoint of zeros for a model's config, which takes no disk.

transformers builds the model without memory and saves it by its own code, so names, shapes, tied
weights, files and the index are those of a checkpoint from its save_pretrained(). The one thing that is
replaced is the writing of a file: a header of safetensors, and a hole as long as the tensors.
"""

import argparse
import errno
import json
import os
import sys

_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


class Refused(Exception):
    """The request cannot be fulfilled. The text has the reason."""


def write_hole(tensors, path, metadata=None):
    """Writes a safetensors file in which all tensors are zeros, as a hole."""
    header, end = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in sorted(tensors.items()):
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _TYPES:
            raise Refused(f"{name} has the type {kind}, which is not known here")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[kind], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            file.truncate(8 + len(text) + end)
        except OSError as error:
            if error.errno in (errno.EFBIG, errno.EINVAL):
                raise Refused(f"{path}: this file system has no files of {end} bytes") from error
            raise


def read_config(path):
    from transformers import AutoConfig

    try:
        with open(path, encoding="utf-8") as file:
            kind = json.load(file)["model_type"]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} is not a model's config.json: {error!r}") from error
    try:
        return AutoConfig.from_pretrained(path)
    except Exception as error:
        raise Refused(f"{path}: transformers does not take this config of {kind!r}: {error}") from error


def build(config, dtype):
    import torch
    import transformers

    architecture = (config.architectures or [None])[0]
    made = getattr(transformers, architecture, None) if architecture else None
    with torch.device("meta"):
        if made is not None:
            return made._from_config(config, dtype=dtype)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def save(config_path, folder, dtype_name, shard):
    import torch
    import transformers
    from transformers import modeling_utils

    config = read_config(config_path)
    dtype = getattr(torch, dtype_name, None) if dtype_name else config.dtype or torch.bfloat16
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise Refused(f"--dtype {dtype_name}: expected a type such as bfloat16 or float32")
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise Refused(f"{folder} is there, and is not an empty folder: name a new one")
    transformers.utils.logging.disable_progress_bar()
    try:
        model = build(config, dtype)
    except Exception as error:
        raise Refused(f"{config_path}: transformers makes no model of it: {error}") from error
    if not hasattr(modeling_utils, "safe_save_file"):
        raise Refused(f"transformers {transformers.__version__} saves in another way than 5.17 did")
    modeling_utils.safe_save_file = write_hole
    model.save_pretrained(folder, max_shard_size=shard)
    return model


def total(folder):
    """The number of files, their bytes, and their bytes on disk."""
    found = [os.stat(os.path.join(folder, each)) for each in os.listdir(folder) if each.endswith(".safetensors")]
    return len(found), sum(each.st_size for each in found), sum(each.st_blocks * 512 for each in found)


def main():
    parser = argparse.ArgumentParser(prog="reveille weights", description=__doc__.split("\n")[0])
    parser.add_argument("config", metavar="CONFIG", help="a model's config.json")
    parser.add_argument("folder", metavar="DIR", help="a new folder for the checkpoint")
    parser.add_argument("--dtype", help="of the weights (default: the config's)")
    parser.add_argument("--shard", default="5GB", help="the largest file (default: 5GB)")
    options = parser.parse_args()
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"reveille: weights: {error}: run it where the program's transformers is", file=sys.stderr)
        return 2
    try:
        model = save(options.config, options.folder, options.dtype, options.shard)
    except (Refused, OSError) as error:
        print(f"reveille: weights: {error}", file=sys.stderr)
        return 2
    files, size, on_disk = total(options.folder)
    print(
        f"{options.folder}: {model.num_parameters():,} parameters of {type(model).__name__} in "
        f"{model.dtype}, {size / 2**30:.1f} GiB in {files} files that take {on_disk / 2**10:.0f} KiB of disk"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
