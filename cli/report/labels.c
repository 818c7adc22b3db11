/* SPDX-License-Identifier: MIT */
/* Places names of stages that are longer than their stages are wide. */
#include "cli/report/report.h"

#define MANY_STAGES 60u /* with more stages, several lanes would not help */

label_lanes label_lanes_of(const rvl_timeline *timeline, double width, double gap)
{
    bool many = rvl_timeline_stage_count(timeline) > MANY_STAGES;
    return (label_lanes){.width = width, .gap = gap, .most = many ? 1 : LABEL_LANES_MAX};
}

uint32_t label_place(label_lanes *lanes, double *left, double width)
{
    double place = *left + width > lanes->width ? lanes->width - width : *left;
    uint32_t lane = 0;
    place = place > 0 ? place : 0;
    while (lane < lanes->count && lanes->ends[lane] > place)
        lane++;
    if (lane >= lanes->most)
        return LABEL_NO_LANE;
    lanes->count = lane < lanes->count ? lanes->count : lane + 1;
    lanes->ends[lane] = place + width + lanes->gap;
    *left = place;
    return lane;
}
