#include <cstdio>
#include <cassert>
extern "C" __device__ char g1[1 << 20];
extern "C" __global__ void empty() {}
extern "C" __global__ void prints(int *p) { if (p) printf("%d\n", *p); }
extern "C" __global__ void mallocs(char **p) { if (p) { *p = (char *)malloc(64); } }
extern "C" __global__ void asserts(int *p) { if (p && !*p) __trap(); }
extern "C" __global__ void asserted(int *p) { assert(p == nullptr); }
extern "C" __global__ void touch1(int i) { if (i > 5) g1[i] = 1; }
template <int N> __device__ void frame(int *p, int i) { volatile char b[N]; for (int k = 0; k < N; k += 16) b[(k + i) % N] = (char)i; if (p) *p = b[i % N]; }
#define L(n) extern "C" __global__ void l##n(int *p, int i) { frame<n>(p, i); }
L(16) L(32) L(64) L(96) L(128) L(192) L(256) L(320) L(384) L(448) L(512) L(640) L(768) L(1024) L(1536) L(2048) L(4096) L(8192) L(16384) L(32768) L(65536)
