#include <cuda_runtime.h>
#define E extern "C" __attribute__((visibility("default")))
__global__ void empty() {}
__device__ char big[4 << 20];
__global__ void other(int i) { if (i > 5) big[i] = 1; }
template <int N> __global__ void loc(int *p, int i) { volatile char b[N]; for (int k = 0; k < N; k += 16) b[(k + i) % N] = (char)i; if (p) *p = b[i % N]; }
E int run_empty() { empty<<<1, 1>>>(); return cudaDeviceSynchronize(); }
E int run_other() { other<<<1, 1>>>(0); return cudaDeviceSynchronize(); }
E int run_local(int n, int blocks) { int *z = 0; switch (n) { case 64: loc<64><<<blocks, 32>>>(z, 1); break; case 512: loc<512><<<blocks, 32>>>(z, 1); break; case 1024: loc<1024><<<blocks, 32>>>(z, 1); break; case 4096: loc<4096><<<blocks, 32>>>(z, 1); break; } return cudaDeviceSynchronize(); }
