/* A disk that fails: stands before write, pwrite, fsync and fdatasync on the files that are named.
 *
 * The test arms it: the nth call of a kind fails in a given way, once or from then on. Calls on the
 * named files are counted, so that a test can tell that a commit came before an acknowledgement.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { NONE, EIO_ONCE, FULL, SHORT_WRITE, TORN_AND_KILLED };
enum { WRITES, SYNCS };

static char name[256];
static atomic_int way, kind, lasting;
static atomic_long left, writes, syncs;

void faults_watch(const char *part) { strncpy(name, part, sizeof name - 1); }
void faults_arm(int of, int how, long nth, int stays) {
    kind = of; way = how; left = nth; lasting = stays;
}
void faults_off(void) { way = NONE; }
long faults_writes(void) { return writes; }
long faults_syncs(void) { return syncs; }
int faults_hit(void) { return way != NONE && left <= 0; }

static int watched(int fd) {
    char link[64], path[4096];
    ssize_t size;
    int before = errno;
    if (!name[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, name) != NULL;
}

static int due(int of) {
    if (way == NONE || kind != of) return NONE;
    long now = atomic_fetch_sub(&left, 1);
    return now == 1 || (lasting && now < 1) ? way : NONE;
}

typedef ssize_t (*pwrite_t)(int, const void *, size_t, off64_t);

static ssize_t faulty(int fd, const void *data, size_t size, off64_t at, const char *real) {
    pwrite_t next = (pwrite_t)dlsym(RTLD_NEXT, real);
    if (!watched(fd)) return next(fd, data, size, at);
    writes++;
    switch (due(WRITES)) {
    case EIO_ONCE: errno = EIO; return -1;
    case FULL: errno = ENOSPC; return -1;
    case SHORT_WRITE: return next(fd, data, size / 2, at);
    case TORN_AND_KILLED: next(fd, data, size / 2, at); raise(SIGKILL);
    }
    return next(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return faulty(fd, data, size, at, "pwrite");
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return faulty(fd, data, size, at, "pwrite64");
}

static int synced(int fd, const char *real) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, real);
    if (watched(fd)) {
        switch (due(SYNCS)) {
        case EIO_ONCE: errno = EIO; return -1;
        case FULL: errno = ENOSPC; return -1;
        case TORN_AND_KILLED: raise(SIGKILL);
        }
        syncs++;
    }
    return next(fd);
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
