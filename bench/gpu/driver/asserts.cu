#include <cassert>
extern "C" __global__ void asserted(int *p) { assert(p == nullptr); }
extern "C" __global__ void plain(int *p) { if (p) *p = 1; }
