# SPDX-License-Identifier: MIT
"""What cuDNN says that recurrent networks need beside their weights: a line of CSV for each network.

usage: recurrent.py [--short]    --short: twenty networks

Reserve is what the forward pass of a training step keeps for the backward pass. Settings are those that PyTorch makes
(aten/src/ATen/native/cudnn/RNN.cpp): two biases, linear input, and for types of 16 bits products in tensor cores.
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
    lengths = (C.c_int * sequences)(*([steps] * sequences))
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


print(f"# cuDNN {dnn.cudnnGetVersion()}")
print("dropout,packed,mode,type,both,layers,hidden,input,sequences,steps,algorithm,math,projection,weights,"
      "training_workspace,training_reserve,workspace,reserve")  # fmt: skip
before = None
for case in itertools.islice(cases(), 20 if "--short" in sys.argv else None):
    dropout, packed, mode, kind, both, layers, shape, algorithm, math, projection = case
    if dropout != before:
        drop(dropout)
        before = dropout
    sizes = asked(mode, kind, both, layers, shape, algorithm, math, packed, projection) or ["refused"] * 5
    print(*(dropout, packed, mode, kind, both, layers, *shape, algorithm, math, projection, *sizes), sep=",", flush=True)
