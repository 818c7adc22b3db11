extern "C" __device__ char g64[64 << 20];
extern "C" __global__ void touch64(int i) { if (i > 5) g64[i] = 1; }
