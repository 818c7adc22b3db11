/* SPDX-License-Identifier: MIT */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int watched[] = {SIGINT, SIGTERM};
static volatile sig_atomic_t came;
static struct sigaction before[sizeof watched / sizeof watched[0]];

static void note(int number)
{
    came = number;
}

void interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        sigaction(watched[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
    }
}

bool interrupt_came(void)
{
    return came != 0;
}

void interrupt_unwatch(void)
{
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++)
        sigaction(watched[i], &before[i], NULL);
}

void interrupt_finish(void)
{
    if (came == 0)
        return;
    signal(came, SIG_DFL);
    raise(came);
}
