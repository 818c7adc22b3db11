/* SPDX-License-Identifier: MIT */
/* The contract of every backend, on the CUDA backend, plain and through the fault injector. */
#include "tests/support/contract.h"
#include "gpu.h"

int main(void)
{
    const int first = 0;
    const rvl_cuda_options options = {
        .struct_size = sizeof options, .devices = &first, .device_count = 1};
    if (!gpu_is_there())
        return SKIPPED;
    return contract_run("cuda", &rvli_cuda_ops, &options);
}
