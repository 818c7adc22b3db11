# SPDX-License-Identifier: MIT
# A CUDA toolkit from the packages of a Python environment, for kernels that SGLang compiles when it first uses them. To be sourced:
#   make_toolkit PYTHON FOLDER LIBCUDA     exports CUDA_HOME=FOLDER; LIBCUDA: what the kernels are linked with
# Its requirements bring a newer compiler than the headers are of: the one that fits is installed. A build
# of PyTorch without CUDA may lie in a folder or an index that pip is configured with.
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
    # A driver lies where the linker looks anyway, which this one does not.
    ln -sfn "$3" "$CUDA_HOME/lib64/stubs/libcuda.so"
    ln -sfn "$3" "$CUDA_HOME/lib64/libcuda.so"
}
