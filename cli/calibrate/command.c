/* SPDX-License-Identifier: MIT */
/*
 * reveille calibrate: measures a card, makes a profile of it, and replays a trace on both.
 *
 * After each part of the measurement, checks whether another program used the card in the meantime.
 * If so, discards the part's values and repeats it. After some tries, refuses to go on.
 */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "calibrate/again.h"
#include "options.h"
#include "output.h"

#define ORDINAL_MAX 63
#define DISK_USUAL "/tmp"

typedef struct arguments {
    const char *output;
    const char *fit;
    const char *disk;
    uint32_t gpu;
    uint32_t tries;
    bool no_disk;
    bool json;
} arguments;

#define FIELD(name) offsetof(arguments, name)

const command_spec calibrate_spec = {
    .name = "calibrate",
    .summary = "measure a card, and write its device profile",
    .usage = "[OPTION]...",
    .description =
        "Measures a real card in under a minute: how much memory programs get, how much the driver "
        "takes, the cost of each call by size, and the speed of the link, host memory, digests and "
        "the disk. Makes a profile from the medians. Then replays a trace on the card and on the "
        "profile, and prints a table that shows how well they agree.\n\n"
        "You can name the profile's file wherever you name a device: `--device card.json`.\n\n"
        "No other program may use the card in the meantime. Programs that do are named. A "
        "disturbed measurement is repeated, and after a few tries the command fails.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "output",
             .value = "FILE",
             .help = "write the profile; without it, only the table is printed",
             .usual = "none",
             .files = "json",
             .field = FIELD(output)},
            {.kind = OPTION_FILE,
             .name = "fit",
             .value = "FILE",
             .help = "do not measure: fit the costs again from the measurements in this profile",
             .usual = "measure a card",
             .files = "json",
             .field = FIELD(fit)},
            {.kind = OPTION_NUMBER,
             .name = "gpu",
             .value = "N",
             .help = "CUDA's number of the card",
             .usual = "0",
             .most = ORDINAL_MAX,
             .field = FIELD(gpu)},
            {.kind = OPTION_FILE,
             .name = "disk",
             .value = "FOLDER",
             .help = "folder in which to measure backups on disk, with a file of 1 GiB; a tmpfs is "
                     "skipped",
             .usual = "/tmp",
             .expected = "a folder",
             .field = FIELD(disk)},
            {.kind = OPTION_FLAG,
             .name = "no-disk",
             .help = "do not measure the disk",
             .usual = "measure it",
             .field = FIELD(no_disk)},
            {.kind = OPTION_NUMBER,
             .name = "tries",
             .value = "N",
             .help = "how often to measure a part that other programs disturb",
             .usual = "3",
             .least = 1,
             .most = 100,
             .field = FIELD(tries)},
            {.kind = OPTION_FLAG,
             .name = "json",
             .help = "print the profile",
             .usual = "a table",
             .field = FIELD(json)},
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "measured"},
                                  {"2", "bad usage, no CUDA, a FILE that cannot be written, or "
                                        "other programs use the card"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille calibrate -o card.json", "Measure card 0 and keep its profile."},
            {"reveille replay run.rvt --device card.json", "Predict with it."},
            {"reveille calibrate --gpu 3 --disk /scratch -o card.json",
             "Measure another card, and another disk."},
            {"reveille calibrate --fit card.json -o card.json",
             "After an update: fit the same measurements with the new version."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-devices(1), reveille-replay(1); docs/calibrate.md in the "
                "sources",
};

#ifdef RVL_HAVE_CUDA

#include "calibrate/agree.h"
#include "calibrate/card.h"
#include "calibrate/document.h"
#include "calibrate/neighbours.h"
#include "calibrate/print.h"
#include "progress.h"

#define WAIT_MS 2000
#define HOST_SHARE 4 /* pin at most this fraction, 1/4, of the available memory */
#define STEPS 11
#define CHILD_GONE_MS 5000 /* most time to wait for the child's memory to become free */
#define CHILD_LOOK_MS 50   /* period of checking it */
#define CHILD_LEAVES_BYTES (UINT64_C(16) << 20)
#define CONTEXTS 2 /* of this process and its child */

typedef struct run {
    const arguments *parsed;
    card card;
    samples all;
    neighbours others;
    uint64_t free_at_begin; /* before the child made a context */
    rvl_profile profile;
    uint64_t measured_costs;
    agreement agreed;
    output_file file; /* of -o; opened before the measurement */
    bool file_open;
    char name[64], description[160], source[200], date[16];
} run;

static int explain(rvl_status status)
{
    const rvl_error *error = rvli_error_get();
    progress_end();
    bool known = error->status == status && error->message[0] != '\0';
    const char *what = known ? error->message : rvl_status_text(status);
    return complain(status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT, "calibrate: %s",
                    what);
}

static int refuse_neighbours(const run *it, const char *who)
{
    char tries[COUNT_TEXT_BYTES];
    progress_end();
    return complain(EXIT_BAD_INPUT,
                    "calibrate: %s uses card %u, after %s: end it, or name another card (--gpu, "
                    "CUDA_VISIBLE_DEVICES)",
                    who, it->parsed->gpu, format_count(it->parsed->tries, "try", "tries", tries));
}

/* ---- Measuring ---- */

static int wait_for(const run *it, uint32_t tries, const char *who)
{
    if (tries == it->parsed->tries)
        return refuse_neighbours(it, who);
    complain(0, "calibrate: %s uses card %u: waiting", who, it->parsed->gpu);
    sleep_ms(WAIT_MS);
    return EXIT_FITS;
}

static int begin(run *it, context_child *child)
{
    char who[NEIGHBOURS_TEXT_BYTES];
    int exit = EXIT_FITS;
    rvl_status status = card_find(&it->card, 0);
    if (status != RVL_OK)
        return explain(status);
    neighbours_open(&it->others, &it->card);
    for (uint32_t tries = 1; exit == EXIT_FITS && neighbours_before(&it->others, who); tries++)
        exit = wait_for(it, tries, who);
    if (exit != EXIT_FITS)
        return exit;
    status = card_open(&it->card);
    if (status != RVL_OK)
        return explain(status);
    it->free_at_begin = card_free_bytes(&it->card);
    uint64_t context_bytes = context_child_measure(child, &it->card);
    for (uint32_t tries = 1;
         exit == EXIT_FITS && neighbours_hidden(&it->card, CONTEXTS, context_bytes, who); tries++) {
        exit = wait_for(it, tries, who);
        it->free_at_begin = card_free_bytes(&it->card) + context_bytes;
    }
    if (exit != EXIT_FITS)
        return exit;
    if (context_bytes > 0)
        samples_add(&it->all, "context_takes", 0, "bytes", context_bytes);
    uint64_t bytes = 0, first_ns = context_child_first_pause(child, &bytes);
    if (first_ns > 0)
        samples_add(&it->all, "pause_first", bytes, "ns", first_ns);
    return EXIT_FITS;
}

/* Measures a part, and repeats it while other programs use the card. */
static int measure_part(run *it, bool (*part)(card *card))
{
    char who[NEIGHBOURS_TEXT_BYTES];
    for (uint32_t tries = 1;; tries++) {
        samples fresh = {0};
        it->card.measured = &fresh;
        rvl_status status = card_measure(&it->card, part);
        bool disturbed = neighbours_since(&it->others, &it->card, who);
        if (status == RVL_OK && !disturbed) {
            samples_move(&it->all, &fresh);
            return EXIT_FITS;
        }
        samples_free(&fresh);
        if (!disturbed)
            return explain(status);
        if (tries == it->parsed->tries)
            return refuse_neighbours(it, who);
        complain(0, "calibrate: %s uses card %u: measuring again", who, it->parsed->gpu);
        sleep_ms(WAIT_MS);
    }
}

static int measure(run *it)
{
    /* measure_blocks repeats, because calls are slow for some seconds and fast for others. */
    static bool (*const parts[])(card *) = {measure_footprint, measure_blocks,   measure_calls,
                                            measure_blocks,    measure_clearing, measure_copies,
                                            measure_blocks,    measure_library,  measure_blocks};
    int exit = EXIT_FITS;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && exit == EXIT_FITS; i++) {
        exit = measure_part(it, parts[i]);
        progress_report(i + 2, STEPS, i + 2);
        if (i == 0) /* do not count what streams and kernels leave behind as another program's */
            it->others.free_bytes = card_free_bytes(&it->card);
    }
    if (exit == EXIT_FITS && it->all.failed)
        return complain(EXIT_INTERNAL, "out of host memory");
    return exit;
}

/* ---- The profile ---- */

/* Makes "nvidia-h200" from "NVIDIA H200". */
static void make_name(const char *card_name, char name[64])
{
    size_t length = 0;
    for (; *card_name != '\0' && length < 63; card_name++) {
        if (isalnum((unsigned char)*card_name))
            name[length++] = (char)tolower((unsigned char)*card_name);
        else if (length > 0 && name[length - 1] != '-')
            name[length++] = '-';
    }
    name[length] = '\0';
    if (length == 0)
        snprintf(name, 64, "card");
}

static rvl_status make_profile(run *it)
{
    struct tm day;
    time_t now = time(NULL);
    it->profile.struct_size = sizeof it->profile;
    rvl_status status =
        rvl_profile_find("h200", &it->profile); /* for figures that are not measured */
    if (status != RVL_OK)
        return status;
    strftime(it->date, sizeof it->date, "%Y-%m-%d", gmtime_r(&now, &day));
    make_name(it->card.name, it->name);
    snprintf(it->description, sizeof it->description, "%s, as reveille calibrate found it",
             it->card.name);
    snprintf(it->source, sizeof it->source, "cuda: measured by reveille calibrate, %s, CUDA %d.%d",
             it->date, it->card.driver_version / 1000, it->card.driver_version % 1000 / 10);
    it->profile.name = it->name;
    it->profile.description = it->description;
    it->profile.source = it->source;
    it->profile.capacity_bytes = it->card.total_bytes;
    it->profile.granularity_bytes = it->card.granularity_bytes;
    it->profile.flags = RVL_PROFILE_MEASURED | (it->card.rdma ? 0 : RVL_PROFILE_NO_RDMA);
    it->profile.capacity_doubt_bytes = 0;
    it->profile.driver = (rvl_driver_use){0};
    return samples_fit(&it->all, &it->profile, &it->measured_costs)
               ? RVL_OK
               : rvli_error(RVL_ERR_HOST_OOM, "no host memory for a profile");
}

static char *text_of(const run *it, bool with_agreement)
{
    const document made = {.profile = &it->profile,
                           .measured_costs = it->measured_costs,
                           .measured = &it->all,
                           .agreed = with_agreement ? &it->agreed : NULL,
                           .driver_version = it->card.driver_version,
                           .date = it->date};
    return document_text(&made);
}

static bool write_all(int fd, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t written = write(fd, text, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        left -= (size_t)written;
    }
    return true;
}

/* Replays the trace on the profile as a reader will load it: from a file, here without a name. */
static rvl_status replay_own_trace(run *it)
{
    char path[RVLI_OUTPUT_PATH_BYTES];
    char *text = text_of(it, false);
    int fd = text != NULL ? memfd_create("reveille-profile", MFD_CLOEXEC) : -1;
    bool written = fd >= 0 && write_all(fd, text);
    free(text);
    rvl_status status = RVL_ERR_HOST_OOM;
    if (written) {
        uint64_t room = card_free_bytes(&it->card) / 10 * 8;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        status = agree_replay(room, it->card.library.host_bytes_max, it->card.granularity_bytes,
                              path, &it->agreed);
    } else {
        rvli_error(status, "no host memory for the profile");
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- Report ---- */

static bool print_report(const run *it)
{
    char capacity[SIZE_TEXT_BYTES];
    say("%s: %s (%" PRIu64 " bytes) for programs, granularity %" PRIu64 " bytes\n", it->card.name,
        format_size(it->card.total_bytes, capacity), it->card.total_bytes,
        it->card.granularity_bytes);
    if (!calibrate_print_measured(&it->all))
        return false;
    say("The same trace on the profile and on the card:\n");
    if (!calibrate_print_agreed(&it->agreed))
        return false;
    say("Worst peak: %.3f %%. Worst time of 5 ms or more: %.1f %%.\n",
        100 * agree_worst_peak(&it->agreed), 100 * agree_worst_time(&it->agreed));
    return true;
}

/* ---- Command ---- */

static int write_profile(run *it, const char *text)
{
    if (it->parsed->output == NULL)
        return EXIT_FITS;
    fputs(text, it->file.stream);
    it->file_open = false;
    return output_finish(&it->file, true);
}

static int tell(run *it)
{
    char *text = text_of(it, true);
    if (text == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    int exit = write_profile(it, text);
    if (exit == EXIT_FITS && it->parsed->json)
        fputs(text, stdout);
    else if (exit == EXIT_FITS && !print_report(it))
        exit = complain(EXIT_INTERNAL, "out of host memory");
    free(text);
    return exit;
}

/* Returns how many bytes of host memory to pin at most: a quarter of MemAvailable. */
static uint64_t host_bytes_free(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
    }
    if (file != NULL)
        fclose(file);
    return kib * KIB / HOST_SHARE;
}

/*
 * Waits until the driver has freed the memory of the child, which takes a while after its end.
 * Before that, the memory would look like another program's.
 */
static void wait_for_memory(run *it)
{
    for (int waited_ms = 0; waited_ms < CHILD_GONE_MS; waited_ms += CHILD_LOOK_MS) {
        if (card_free_bytes(&it->card) + CHILD_LEAVES_BYTES >= it->free_at_begin)
            return;
        sleep_ms(CHILD_LOOK_MS);
    }
}

static int measure_card(run *it, context_child *child)
{
    int exit = begin(it, child);
    context_child_end(child);
    if (exit != EXIT_FITS)
        return exit;
    wait_for_memory(it);
    neighbours_settle(&it->others, &it->card);
    progress_report(1, STEPS, 1);
    exit = measure(it);
    if (exit != EXIT_FITS)
        return exit;
    rvl_status status = make_profile(it);
    if (status == RVL_OK)
        status = replay_own_trace(it);
    return status == RVL_OK ? EXIT_FITS : explain(status);
}

static int calibrate(run *it, context_child *child)
{
    progress_begin("calibrate", "parts");
    int exit = measure_card(it, child);
    progress_end();
    return exit == EXIT_FITS ? tell(it) : exit;
}

/*
 * Makes this card the only one that the process sees, so that the replay finds it as device 0. Sets
 * CUDA_VISIBLE_DEVICES to the N-th entry of its list, or to N if it is not set. false: the list is
 * shorter.
 */
static bool show_one_card(uint32_t number)
{
    char one[128];
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");
    if (shown == NULL || shown[0] == '\0') {
        snprintf(one, sizeof one, "%" PRIu32, number);
        return setenv("CUDA_VISIBLE_DEVICES", one, 1) == 0;
    }
    for (; number > 0; number--) {
        shown = strchr(shown, ',');
        if (shown == NULL)
            return false;
        shown++;
    }
    snprintf(one, sizeof one, "%.*s", (int)strcspn(shown, ","), shown);
    return setenv("CUDA_VISIBLE_DEVICES", one, 1) == 0;
}

/* Checks the disk's folder before the measurement. A folder in memory (tmpfs) is not an error: its
 * measurement is skipped later. */
static int check_disk(const arguments *parsed)
{
    struct stat facts;
    int number = 0;
    if (parsed->no_disk)
        return EXIT_FITS;
    if (stat(parsed->disk, &facts) != 0)
        number = errno;
    else if (!S_ISDIR(facts.st_mode))
        number = ENOTDIR;
    else if (access(parsed->disk, W_OK | X_OK) != 0)
        number = errno;
    if (number == 0)
        return EXIT_FITS;
    return complain(EXIT_BAD_INPUT,
                    "calibrate: --disk %s: %s: name a folder that you may write to, or leave the "
                    "disk out (--no-disk)",
                    parsed->disk, strerror(number));
}

/* Opens the output before the measurement, so that a bad path does not waste a minute's work. */
static int open_output(run *it)
{
    if (it->parsed->output == NULL)
        return EXIT_FITS;
    int exit = output_open(it->parsed->output, &it->file);
    it->file_open = exit == EXIT_FITS;
    return exit;
}

static int run_it(const arguments *parsed)
{
    int refused = check_disk(parsed);
    if (refused != EXIT_FITS)
        return refused;
    if (!show_one_card(parsed->gpu))
        return options_refuse(&calibrate_spec,
                              "--gpu %" PRIu32 ": CUDA_VISIBLE_DEVICES lists fewer cards",
                              parsed->gpu);
    /* Fork before any call of the driver: a child cannot use a driver that its parent has started.
     */
    context_child *child = context_child_start(0);
    run *it = calloc(1, sizeof *it);
    if (it == NULL) {
        context_child_end(child);
        return complain(EXIT_INTERNAL, "out of host memory");
    }
    it->parsed = parsed;
    it->card.measured = &it->all;
    it->card.began_ns = now_ns();
    it->card.library =
        (struct library_options){.disk_directory = parsed->no_disk ? NULL : parsed->disk,
                                 .host_bytes_max = host_bytes_free()};
    int exit = open_output(it);
    if (exit == EXIT_FITS)
        exit = calibrate(it, child);
    else
        context_child_end(child);
    if (it->file_open)
        output_abandon(&it->file);
    card_close(&it->card);
    neighbours_close(&it->others);
    samples_free(&it->all);
    free(it);
    return exit;
}

#else

static int run_it(const arguments *parsed)
{
    (void)parsed;
    return complain(EXIT_BAD_INPUT, "calibrate: this build has no CUDA backend: build it where "
                                    "cuda.h is (RVL_CUDA_INCLUDE names its folder)");
}

#endif

/* Refuses options of the measurement together with --fit. */
static int check_fit(const arguments *parsed, const option_line *line)
{
    static const char *const names[] = {"gpu", "disk", "no-disk", "tries"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (parsed->fit != NULL && options_given(&calibrate_spec, line, names[i]))
            return options_refuse(&calibrate_spec,
                                  "--%s: not with --fit, which measures nothing: leave one of them "
                                  "out",
                                  names[i]);
    return EXIT_FITS;
}

int command_calibrate(int argc, char **argv)
{
    arguments parsed = {.disk = DISK_USUAL, .tries = 3};
    option_line line;
    if (!options_parse(&calibrate_spec, argc, argv, &parsed, &line))
        return line.status;
    if (line.first < argc)
        return options_refuse(&calibrate_spec, "calibrate: unexpected argument %s",
                              argv[line.first]);
    int status = options_check_ending(&calibrate_spec, "-o", parsed.output, "json");
    if (status == EXIT_FITS)
        status = check_fit(&parsed, &line);
    if (status != EXIT_FITS)
        return status;
    return parsed.fit != NULL ? fit_again(parsed.fit, parsed.output, parsed.json) : run_it(&parsed);
}
