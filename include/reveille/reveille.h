/* SPDX-License-Identifier: MIT */
/* Includes all of libreveille. Traces and replay (libreveille-replay) are in reveille/replay.h. */
#ifndef REVEILLE_REVEILLE_H
#define REVEILLE_REVEILLE_H

#include "reveille/context.h"
#include "reveille/control.h"
#include "reveille/cuda.h"
#include "reveille/guard.h"
#include "reveille/listen.h"
#include "reveille/memory.h"
#include "reveille/parts.h"
#include "reveille/record.h"
#include "reveille/share.h"
#include "reveille/sim.h"
#include "reveille/sleep.h"
#include "reveille/stats.h"
#include "reveille/status.h"
#include "reveille/store.h"
#include "reveille/transition.h"
#include "reveille/version.h"
#include "reveille/wake.h"

#endif
