# SPDX-License-Identifier: MIT
# Debian's cross compiler for aarch64, with libraries of Debian's arm64 packages below RVL_CROSS_ROOT (scripts/aarch64
# fetches them). What is built runs under qemu's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RVL_CROSS_ROOT)
set(CMAKE_FIND_ROOT_PATH ${RVL_CROSS_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH) # CUDA's headers serve both processors
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "${RVL_CROSS_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${RVL_CROSS_ROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${RVL_CROSS_ROOT})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${RVL_CROSS_ROOT})
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${RVL_CROSS_ROOT}/usr/lib/aarch64-linux-gnu:${RVL_CROSS_ROOT}/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
