/* A clock that can be moved: what a process of the harness sees as the time of day is the real one and an offset.
 *
 * Loaded by LD_PRELOAD. The offset in nanoseconds is the first 8 bytes of the file that FRESHLINE_CHAOS_CLOCK names.
 * Elapsed time (CLOCK_MONOTONIC) stays as it is, as it does when somebody sets the clock of a machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t zero = 0;
static const volatile int64_t *offset = &zero;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find_offset(void) {
    const char *path = getenv("FRESHLINE_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) offset = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime)
        real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock_gettime(clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t moved = *offset + now->tv_nsec;
    int64_t seconds = moved / 1000000000, rest = moved % 1000000000;
    if (rest < 0) { rest += 1000000000; seconds -= 1; }
    now->tv_sec += seconds;
    now->tv_nsec = rest;
    return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    if (to) *to = found.tv_sec;
    return found.tv_sec;
}
