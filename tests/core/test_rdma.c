/* SPDX-License-Identifier: MIT */
/* RVL_ALLOC_RDMA on simulated devices: profiles that have it, profiles that lack it. */
#include "backends/sim/sim.h"
#include "core/context/context.h"
#include "tests/support/rdma.h"

/* Blocks that exist with the property, counted between core and the simulator. */
#define HANDLES 64
static uint64_t rdma_size[HANDLES];

static rvl_status spy_create(void *self, int device, uint64_t size, uint32_t properties,
                             rvli_handle *block_out)
{
    rvl_status status = rvli_sim_ops.create(self, device, size, properties, block_out);
    if (status == RVL_OK && (properties & RVLI_BLOCK_RDMA) && *block_out < HANDLES)
        rdma_size[*block_out] = size;
    return status;
}

static rvl_status spy_release(void *self, int device, rvli_handle block, uint64_t size)
{
    rvl_status status = rvli_sim_ops.release(self, device, block, size);
    if (status == RVL_OK && block < HANDLES)
        rdma_size[block] = 0;
    return status;
}

static uint64_t spy_rdma_bytes(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < HANDLES; i++)
        bytes += rdma_size[i];
    return bytes;
}

static rvl_context *open_profile(const char *name, uint32_t flags, uint64_t keep_bytes)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    assert_int_equal(rvl_profile_find(name, &profile), RVL_OK);
    profile.flags |= flags;
    const rvl_profile *devices[] = {&profile};
    const rvl_sim_options sim = {.struct_size = sizeof sim,
                                 .memory = RVL_SIM_ACCOUNTED,
                                 .devices = devices,
                                 .device_count = 1};
    const rvl_context_options options = {
        .struct_size = sizeof options, .backend_options = &sim, .keep_bytes = keep_bytes};
    rvli_backend_ops ops = rvli_sim_ops;
    ops.create = spy_create;
    ops.release = spy_release;
    rvl_context *context = NULL;
    assert_int_equal(rvli_context_open_ops(&ops, &options, &context), RVL_OK);
    return context;
}

static void it_is_kept(void **state)
{
    (void)state;
    rvl_context *context = open_profile("h200", 0, 64 * MIB);
    rdma_is_kept(context, spy_rdma_bytes);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    assert_int_equal(spy_rdma_bytes(), 0);
}

static void devices_without_it_refuse(void **state)
{
    (void)state;
    const struct {
        const char *profile;
        uint32_t flags;
    } cases[] = {{"h200", RVL_PROFILE_NO_RDMA}, {"rtx4090", 0}, {"rtx5090", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvl_context *context = open_profile(cases[i].profile, cases[i].flags, 0);
        rdma_is_refused(context);
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    }
}

/* The backend answers for itself, too: core may be asked by what knows no facts. */
static void the_backend_refuses(void **state)
{
    (void)state;
    rvli_clock clock = {0};
    rvl_profile profile = {.struct_size = sizeof profile};
    assert_int_equal(rvl_profile_find("l4", &profile), RVL_OK);
    for (int without = 0; without < 2; without++) {
        profile.flags = without ? RVL_PROFILE_NO_RDMA : 0;
        const rvl_profile *devices[] = {&profile};
        const rvl_sim_options sim = {.struct_size = sizeof sim,
                                     .memory = RVL_SIM_ACCOUNTED,
                                     .devices = devices,
                                     .device_count = 1};
        void *self = NULL;
        int count = 0;
        rvli_device_facts facts;
        rvli_handle block = 0;
        assert_int_equal(rvli_sim_ops.open(&sim, &clock, &self, &count), RVL_OK);
        assert_int_equal(rvli_sim_ops.device_facts(self, 0, &facts), RVL_OK);
        assert_int_equal(facts.rdma, !without);
        assert_int_equal(rvli_sim_ops.create(self, 0, GRANULE, RVLI_BLOCK_RDMA, &block),
                         without ? RVL_ERR_NOT_SUPPORTED : RVL_OK);
        assert_int_equal(block != 0, !without);
        rvli_sim_ops.close(self);
    }
}

static void unknown_flags_of_profiles_are_refused(void **state)
{
    (void)state;
    rvl_profile profile = {.struct_size = sizeof profile};
    assert_int_equal(rvl_profile_find("l4", &profile), RVL_OK);
    profile.flags = UINT32_C(1) << 31;
    const rvl_profile *devices[] = {&profile};
    const rvl_sim_options sim = {.struct_size = sizeof sim, .devices = devices, .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    rvl_context *context = NULL;
    assert_int_equal(rvl_context_open("sim", &options, &context), RVL_ERR_VERSION);
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_kept),
        cmocka_unit_test(devices_without_it_refuse),
        cmocka_unit_test(the_backend_refuses),
        cmocka_unit_test(unknown_flags_of_profiles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
