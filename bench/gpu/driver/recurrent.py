# SPDX-License-Identifier: MIT
"""What cuDNN says that recurrent networks need beside their weights: a line of CSV for each network.

usage: recurrent.py [--short | --open]    --short: twenty networks
                                          --open: what the rules of simcuda/dnn/rnn.c leave open

Reserve is what the forward pass of a training step keeps for the backward pass. Settings are those that PyTorch makes
(aten/src/ATen/native/cudnn/RNN.cpp): two biases, linear input, and for types of 16 bits products in tensor cores
(PyTorch 2.11 itself asks for default ones with bfloat16, and so does --open).
"""

import ctypes as C
import itertools
import os
import sys

MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
FLOAT, DOUBLE = 0, 1
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
DOUBLE_BIAS = 2
UNPACKED, PACKED = 0, 1  # both begin with the step
STANDARD, PERSIST_STATIC, PERSIST_DYNAMIC, SMALL_HIDDEN = range(4)
UNEVEN = 2  # packed, and the last half of the sequences has half of the steps (cuDNN 9.19 refuses shorter ones before longer)
SHAPES = (  # hidden units, input, sequences, steps
    *((512, 512, 32, 64), (256, 512, 32, 64), (512, 128, 32, 64), (512, 512, 48, 64), (512, 512, 32, 100)),
    *((1024, 1024, 64, 256), (320, 320, 50, 500), (100, 40, 7, 33), (1000, 1000, 1, 1), (64, 64, 256, 16)),
)


def opened():
    """PyTorch's cuDNN, or the machine's."""
    try:
        import nvidia.cudnn

        folder = os.path.join(list(nvidia.cudnn.__path__)[0], "lib")
    except ImportError:
        folder = ""
    C.CDLL("libcuda.so.1").cuInit(0)
    import torch  # brings the libraries that cuDNN needs

    torch.zeros(1, device="cuda")
    return C.CDLL(os.path.join(folder, "libcudnn.so.9"))


dnn = opened()
dnn.cudnnGetErrorString.restype = C.c_char_p
dnn.cudnnGetVersion.restype = C.c_size_t


def need(answer, what):
    if answer != 0:
        sys.exit(f"recurrent.py: {what}: {dnn.cudnnGetErrorString(answer).decode()}")


def made(kind, *before):
    it = C.c_void_p()
    need(getattr(dnn, f"cudnnCreate{kind}")(*before, C.byref(it)), f"creating {kind}")
    return it


HANDLE = made("")
NETWORK, DATA, DROPOUT = made("RNNDescriptor"), made("RNNDataDescriptor"), made("DropoutDescriptor")


def drop(probability):
    import torch

    size = C.c_size_t()
    need(dnn.cudnnDropoutGetStatesSize(HANDLE, C.byref(size)), "size of states")
    drop.states = torch.empty(size.value, dtype=torch.uint8, device="cuda")
    need(dnn.cudnnSetDropoutDescriptor(DROPOUT, HANDLE, C.c_float(probability), C.c_void_p(drop.states.data_ptr()), size,
                                       C.c_ulonglong(0)), "dropout")  # fmt: skip


def asked(mode, kind, both, layers, shape, algorithm, math, packed, projection):
    """Bytes of weights, then of workspace and reserve for training and for inference. None: cuDNN refuses it."""
    hidden, width, sequences, steps = shape
    refused = dnn.cudnnSetRNNDescriptor_v8(
        NETWORK, algorithm, MODES[mode], DOUBLE_BIAS, both, 0, TYPES[kind], DOUBLE if kind == "float64" else FLOAT, math, width,
        hidden, projection or hidden, layers, DROPOUT, 0 if packed else 1)  # fmt: skip
    shorter = steps // 2 if packed == UNEVEN else steps
    lengths = (C.c_int * sequences)(*(shorter if i >= sequences // 2 else steps for i in range(sequences)))
    refused = refused or dnn.cudnnSetRNNDataDescriptor(
        DATA, TYPES[kind], PACKED if packed else UNPACKED, steps, sequences, width, lengths, None)  # fmt: skip
    found = [C.c_size_t() for _ in range(5)]
    refused = refused or dnn.cudnnGetRNNWeightSpaceSize(HANDLE, NETWORK, C.byref(found[0]))
    for mode_number, at in ((1, 1), (0, 3)):
        refused = refused or dnn.cudnnGetRNNTempSpaceSizes(
            HANDLE, NETWORK, mode_number, DATA, C.byref(found[at]), C.byref(found[at + 1]))  # fmt: skip
    return None if refused else [each.value for each in found]


def cases():
    for dropout, packed in itertools.product((0, 0.1), (0, 1)):
        for mode, kind, both, layers, shape in itertools.product(MODES, TYPES, (0, 1), (1, 2, 3, 4), SHAPES):
            few = dropout or packed or kind == "float64"
            if few and (layers != 2 or shape not in SHAPES[:2] + SHAPES[6:8]):
                continue
            usual = TENSOR_OP_MATH if kind in ("float16", "bfloat16") else DEFAULT_MATH
            yield dropout, packed, mode, kind, both, layers, shape, 0, usual, 0
            if few or shape not in SHAPES[:1] + SHAPES[5:8] or layers > 2:
                continue
            yield dropout, packed, mode, kind, both, layers, shape, 1, usual, 0
            if kind == "float32":
                yield dropout, packed, mode, kind, both, layers, shape, 0, FMA_MATH, 0
            if mode == "lstm":
                yield dropout, packed, mode, kind, both, layers, shape, 0, usual, shape[0] // 2


# Their workspaces would settle what the rules of simcuda/dnn/rnn.c assume.
SMALL = (*itertools.product((32, 64, 96, 128, 192, 256, 384), (64, 200), (8, 33, 256), (16, 100)),)
STEPS = 1, 2, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 128, 129, 144, 255, 256, 257, 400, 1023, 1024, 2000
UNITS = 8, 16, 24, 32, 40, 60, 63, 64, 72, 96, 100, 128, 160, 200, 256, 1000, 2048
SEQUENCES = 1, 2, 3, 4, 6, 7, 8, 9, 12, 16, 20, 33, 64, 100
LONG = 64, 100, 101, 112, 120, 127, 128, 256, 500, 1000


def open_cases():
    def case(mode, kind, both, layers, shape, algorithm=STANDARD, dropout=0, packed=0):
        usual = TENSOR_OP_MATH if kind == "float16" else DEFAULT_MATH  # as PyTorch 2.11 sets it
        return dropout, packed, mode, kind, both, layers, shape, algorithm, usual, 0

    plain_and_gated = "relu", "lstm", "gru"
    for mode, kind, both, layers in itertools.product(plain_and_gated, ("float32", "float16", "bfloat16"), (0, 1), (1, 2)):
        for shape in SMALL:
            yield case(mode, kind, both, layers, shape, SMALL_HIDDEN)
    # Where layers work at the same time, and how many steps have their gates at once.
    shapes = [(256, 256, 32, steps) for steps in STEPS]
    shapes += [(units, 64, 32, 64) for units in UNITS] + [(256, 256, sequences, 64) for sequences in SEQUENCES]
    for shape, mode, kind, layers in itertools.product(shapes, plain_and_gated, ("float32", "float16"), (1, 2, 3)):
        yield case(mode, kind, 0, layers, shape)
    # Persistent networks with much more input than hidden units, and with uneven hidden sizes.
    for algorithm, mode, both, layers in itertools.product((PERSIST_STATIC, PERSIST_DYNAMIC), plain_and_gated, (0, 1), (1, 2)):
        for kind, units, width in itertools.product(("float32", "float16"), (100, 128, 200, 250, 256), (64, 2048)):
            yield case(mode, kind, both, layers, (units, width, 32, 64), algorithm)
    # Sequences of different lengths, and dropout by the number of layers.
    for mode, kind, both, layers in itertools.product(plain_and_gated, ("float32", "float16"), (0, 1), (1, 2, 3, 4)):
        yield case(mode, kind, both, layers, (256, 512, 32, 64), packed=UNEVEN)
    for mode, kind, both, layers in itertools.product(plain_and_gated, ("float32", "float16"), (0, 1), (1, 2, 3, 4)):
        yield case(mode, kind, both, layers, (256, 512, 32, 64), dropout=0.1)
    # From here on not asked on 2026-11-27. Small hidden sizes with dropout, limits of steps and sequences, uneven sizes.
    for mode, kind, both, layers in itertools.product(plain_and_gated, ("float32", "float16"), (0, 1), (1, 2, 3)):
        for units in (32, 128):
            yield case(mode, kind, both, layers, (units, 64, 32, 64), SMALL_HIDDEN, dropout=0.1)
    for sequences, steps, layers in itertools.product((1, 4, 8, 12, 16, 32, 64, 65, 80, 96, 128, 256), LONG, (2, 3)):
        yield case("relu", "float32", 0, layers, (64, 64, sequences, steps))
    for units, width, sequences, steps in itertools.product((100, 102, 104), (40, 64), (1, 4, 7, 8, 9, 12), (32, 33)):
        yield case("relu", "float16", 0, 1, (units, width, sequences, steps), PERSIST_STATIC)


print(f"# cuDNN {dnn.cudnnGetVersion()}")
print("dropout,packed,mode,type,both,layers,hidden,input,sequences,steps,algorithm,math,projection,weights,"
      "training_workspace,training_reserve,workspace,reserve")  # fmt: skip
before = None
wanted = open_cases() if "--open" in sys.argv else itertools.islice(cases(), 20 if "--short" in sys.argv else None)
for case in wanted:
    dropout, packed, mode, kind, both, layers, shape, algorithm, math, projection = case
    if dropout != before:
        drop(dropout)
        before = dropout
    sizes = asked(mode, kind, both, layers, shape, algorithm, math, packed, projection) or ["refused"] * 5
    print(*(dropout, packed, mode, kind, both, layers, *shape, algorithm, math, projection, *sizes), sep=",", flush=True)
