# SPDX-License-Identifier: MIT
# One cubin: kernels k0..kN-1 of about `kib` KiB of code each.
import sys

n, kib, local = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print(".version 9.0\n.target sm_90\n.address_size 64")
for k in range(n):
    print(
        f".visible .entry k{k}(.param .u64 p)\n{{\n.reg .u64 %a; .reg .f32 %f<3>; .reg .b64 %l; .reg .pred %q;"
    )
    if local:
        print(f".local .align 16 .b8 buf[{local}];")
    print("ld.param.u64 %a,[p];\nsetp.eq.u64 %p,%a,0;\n@%p ret;".replace("%p", "%q"))
    print("ld.volatile.global.f32 %f0,[%a];\nmov.f32 %f1,0f3F800000;")
    for i in range(kib * 64 - 30):
        print(f"fma.rn.f32 %f0,%f0,%f0,0f{0x3F800000 + k * 7919 % 65536 + i:08X};")
    if local:
        print(
            "mov.u64 %l, buf;\ncvt.u32.u64 %r0, %a;\nst.volatile.local.f32 [buf],%f0;\nld.volatile.local.f32 %f0,[buf+4];".replace(
                "cvt.u32.u64 %r0, %a;\n", ""
            )
        )
    print("st.volatile.global.f32 [%a],%f0;\nret;\n}")
