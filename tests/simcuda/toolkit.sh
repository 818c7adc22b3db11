# SPDX-License-Identifier: MIT
# A CUDA toolkit from the packages of a Python environment, for kernels that SGLang compiles when it first uses them. Source this file:
#   make_toolkit PYTHON FOLDER LIBCUDA      exports CUDA_HOME=FOLDER; LIBCUDA: the library with which the kernels are linked
# Its requirements install a newer compiler than the headers match, so the matching one is installed here. pip may be configured with a
# folder or an index that has a build of PyTorch without CUDA.
make_toolkit() {
    local python=$1 headers each
    PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' "$python" -m pip install --quiet \
        "cuda-toolkit[nvcc,cccl,crt,nvvm]==$("$python" -c "import importlib.metadata as m; print(m.version('cuda-toolkit'))")"
    headers=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/nvidia/cu13
    export CUDA_HOME=$2
    mkdir -p "$CUDA_HOME/lib64/stubs"
    for each in bin include nvvm; do
        ln -sfn "$headers/$each" "$CUDA_HOME/$each"
    done
    ln -sfn "$headers/lib/libcudart.so.13" "$CUDA_HOME/lib64/libcudart.so"
    # A real driver is where the linker looks anyway. This one is not.
    ln -sfn "$3" "$CUDA_HOME/lib64/stubs/libcuda.so"
    ln -sfn "$3" "$CUDA_HOME/lib64/libcuda.so"
}
