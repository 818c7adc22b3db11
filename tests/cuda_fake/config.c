/* SPDX-License-Identifier: MIT */
/* What the driver is like: from fake_configure(), or else from the environment. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "internal.h"

static fake_settings settings;
static bool known;

static uint64_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static fake_config from_environment(void)
{
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    return (fake_config){
        .devices = devices != NULL ? (int)strtol(devices, NULL, 10) : 0,
        .driver_version = (int)number_of("FAKE_CUDA_DRIVER_VERSION"),
        .capacity_bytes = number_of("FAKE_CUDA_CAPACITY_BYTES"),
        .registered_limit_bytes = number_of("FAKE_CUDA_REGISTERED_LIMIT_BYTES"),
        .rdma_refused = number_of("FAKE_CUDA_RDMA_REFUSED") != 0,
        .export_refused = number_of("FAKE_CUDA_EXPORT_REFUSED") != 0,
        .memory_needs_context = number_of("FAKE_CUDA_MEMORY_NEEDS_CONTEXT") != 0,
        .missing_symbol = getenv("FAKE_CUDA_MISSING_SYMBOL"),
    };
}

static void fill_defaults(fake_config *config)
{
    if (config->devices == 0)
        config->devices = 2;
    if (config->devices < 0)
        config->devices = 0;
    if (config->devices > FAKE_MAX_DEVICES)
        config->devices = FAKE_MAX_DEVICES;
    if (config->driver_version == 0)
        config->driver_version = 13000;
    if (config->capacity_bytes == 0)
        config->capacity_bytes = UINT64_C(1) << 30;
}

static void settle(const fake_config *config)
{
    settings.config = *config;
    fill_defaults(&settings.config);
    settings.missing[0] = '\0';
    if (config->missing_symbol != NULL)
        rvli_text_copy(settings.missing, sizeof settings.missing, config->missing_symbol);
    settings.config.missing_symbol = settings.missing;
    known = true;
}

const fake_config *fake_settings_get(void)
{
    if (!known) {
        fake_config config = from_environment();
        settle(&config);
    }
    return &settings.config;
}

void fake_config_reset(void)
{
    known = false;
}

void fake_configure(const fake_config *config)
{
    FAKE_LOCKED;
    fake_config before = settings.config;
    settle(config);
    if (!fake_initialized())
        return;
    settings.config.devices = before.devices;
    settings.config.driver_version = before.driver_version;
    settings.config.capacity_bytes = before.capacity_bytes;
}
