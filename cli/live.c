/* SPDX-License-Identifier: MIT */
#include "live.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "progress.h"

#define FIRST_MS 2000 /* no line for work that ends sooner */
#define LOOK_MS 100   /* period of checking the terminal's size */
#define REDRAW_MS 500
#define PLAIN_MS 10000
#define ROWS_LEFT 6u /* rows that the command keeps, at least */
#define LINE_BYTES 512
#define SCREEN_BYTES ((LINE_BYTES + 32) * (RVL_MAX_DEVICES + 1))

/* Escape sequences of terminals (ECMA-48, and DEC's two for the cursor). */
#define SAVE "\0337"
#define RESTORE "\0338"
#define PLAIN "\033[0m"
#define INDEX "\033D" /* moves down, and scrolls at the bottom */
#define ERASE_LINE "\033[2K"

static struct {
    bool terminal;
    unsigned rows;  /* of the terminal at the last drawing; 0: nothing is drawn */
    unsigned lines; /* rows at the bottom that are ours */
    uint64_t next_ms;
} now;

/* ---- One write ---- */

typedef struct screen {
    size_t length;
    char text[SCREEN_BYTES];
} screen;

static void put(screen *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(screen *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof to->text - to->length)
        to->length += (size_t)length;
}

/* Blocks SIGTTOU: the command owns the terminal, and `stty tostop` stops other processes that write
 * to it. */
static void show(const screen *of)
{
    sigset_t stopping, before;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stopping, &before);
    ssize_t written = write(STDERR_FILENO, of->text, of->length);
    (void)written; /* the next redraw draws everything again */
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- The rows ---- */

static void erase_lines(screen *to, unsigned rows)
{
    for (unsigned i = 0; i < now.lines && now.rows - i <= rows; i++)
        put(to, "\033[%u;1H" ERASE_LINE, now.rows - i);
}

/* Scrolls the text up, and moves the cursor with it. */
static void make_room(screen *to, unsigned lines)
{
    for (unsigned i = 0; i < lines; i++)
        put(to, INDEX);
    put(to, "\033[%uA", lines);
}

/* Makes room for our lines at the terminal's current size. false: it has too few rows. */
static bool fit(screen *to, unsigned gpus)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row <= ROWS_LEFT)
        return false;
    unsigned room = size.ws_row - ROWS_LEFT;
    unsigned lines = gpus < room ? gpus : room;
    if (now.rows == size.ws_row && now.lines == lines)
        return true;
    if (now.rows > 0) { /* the size changed, and moved the old lines */
        put(to, SAVE "\033[r");
        erase_lines(to, size.ws_row);
        put(to, RESTORE);
    }
    make_room(to, lines);
    now.rows = size.ws_row;
    now.lines = lines;
    return true;
}

static unsigned columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* ---- A line ---- */

/* Formats "GPU 0: 41.2 GiB of 139.8 GiB, peak 52.0 GiB, stage train, most: python[7] 40.1 GiB". */
static void describe(int device, const rvli_machine_view *view, char line[LINE_BYTES])
{
    char used[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES], peak[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    char *stage = printable(view->stage), *name = printable(view->most);
    int length =
        snprintf(line, LINE_BYTES, "GPU %d: %s of %s, peak %s, stage %s", device,
                 format_size(view->used_bytes, used), format_size(view->capacity_bytes, all),
                 format_size(view->peak_bytes, peak), stage != NULL ? stage : "?");
    if (view->most_bytes > 0 && length > 0 && length < LINE_BYTES)
        snprintf(line + length, LINE_BYTES - (size_t)length, ", most: %s %s",
                 name != NULL ? name : "?", format_size(view->most_bytes, most));
    free(stage);
    free(name);
}

/* Cuts to width bytes, between characters. A character has no more columns than bytes. */
static void cut(char line[LINE_BYTES], size_t width)
{
    if (strlen(line) <= width)
        return;
    while (width > 0 && ((unsigned char)line[width] & 0xc0) == 0x80)
        width--;
    line[width] = '\0';
}

/* ---- Drawing ---- */

static void draw(rvli_machine *machine, const rvli_machine_view *views)
{
    static screen to; /* static: too large for the stack */
    char line[LINE_BYTES];
    to.length = 0;
    if (!fit(&to, (unsigned)rvli_machine_gpus(machine)))
        return;
    put(&to, SAVE PLAIN "\033[1;%ur", now.rows - now.lines);
    for (unsigned i = 0; i < now.lines; i++) {
        describe((int)i, &views[i], line);
        cut(line, columns());
        put(&to, "\033[%u;1H" ERASE_LINE "%s", now.rows - now.lines + 1 + i, line);
    }
    put(&to, RESTORE);
    show(&to);
}

static void print_lines(rvli_machine *machine, const rvli_machine_view *views)
{
    char line[LINE_BYTES];
    for (int i = 0; i < rvli_machine_gpus(machine); i++) {
        describe(i, &views[i], line);
        complain(0, "%s", line);
    }
}

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Whether the terminal's height changed: our lines are then where the command writes. */
static bool has_other_size(void)
{
    struct winsize size;
    return now.rows > 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != now.rows;
}

static bool is_due(void)
{
    uint64_t time = now_ms();
    if (time < now.next_ms && !has_other_size())
        return false;
    now.next_ms = time + (now.terminal ? REDRAW_MS : PLAIN_MS);
    return true;
}

/* Draws nothing while the command has not used a GPU. */
static bool look(void *user, rvli_machine *machine)
{
    static rvli_machine_view views[RVL_MAX_DEVICES];
    (void)user;
    if (rvli_machine_processes(machine) == 0 || !is_due())
        return true;
    rvli_machine_look(machine, views);
    if (now.terminal)
        draw(machine, views);
    else
        print_lines(machine, views);
    return true;
}

bool live_begin(rvli_machine_watch *watch_out)
{
    const char *kind = getenv("TERM");
    now.terminal = isatty(STDERR_FILENO) == 1 && kind != NULL && strcmp(kind, "dumb") != 0;
    now.rows = now.lines = 0;
    now.next_ms = now_ms() + (now.terminal ? FIRST_MS : PLAIN_MS);
    *watch_out = (rvli_machine_watch){.period_ms = LOOK_MS, .look = look};
    return progress_wanted(now.terminal);
}

void live_end(void)
{
    static screen to;
    to.length = 0;
    if (now.rows == 0)
        return;
    put(&to, SAVE "\033[r");
    erase_lines(&to, now.rows);
    put(&to, RESTORE);
    show(&to);
    now.rows = 0;
}
