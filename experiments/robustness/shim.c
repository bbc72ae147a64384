/* Stands between a process and the C library: counts what changes files below one folder, and interferes at the chosen
   event. Loaded with LD_PRELOAD; shim.py compiles it and says what the numbers mean. Linux only. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RENAME = 1, WRITE = 2, CREATE = 4, FOLDER = 8, REMOVE = 16, WRITABLE = 32 };

static char root[PATH_MAX];
static size_t root_length;
static int armed, watched, fault, lasting, owner;
static long wanted, seen, hits;

/* `number`: an errno to fail with, or minus a signal to end the process with. `at`: the event, from 1; 0 only counts. */
void shim_arm(const char *folder, int kinds, long at, int number, int stays) {
    armed = 0;
    strncpy(root, folder, sizeof root - 1);
    root_length = strlen(root);
    watched = kinds; wanted = at; fault = number; lasting = stays; seen = 0; hits = 0;
    owner = getpid();
    armed = 1;
}

long shim_seen(void) { return seen; }
long shim_hits(void) { return hits; }

__attribute__((constructor)) static void from_environment(void) {
    const char *given = getenv("ROBUSTNESS_SHIM");
    char folder[PATH_MAX];
    int kinds, number, stays;
    long at;
    if (given && sscanf(given, "%d:%ld:%d:%d:%4000s", &kinds, &at, &number, &stays, folder) == 5) {
        shim_arm(folder, kinds, at, number, stays);
        unsetenv("ROBUSTNESS_SHIM"); /* the processes that this one starts are left alone */
    }
}

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

static int concerns_descriptor(int number) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int concerns(int folder, const char *path) {
    char here[PATH_MAX];
    if (!path) return 0;
    if (path[0] == '/') return below(path);
    if (folder != AT_FDCWD) return concerns_descriptor(folder);
    return getcwd(here, sizeof here) && below(here);
}

/* Returns whether the call is to fail, with errno set. */
static int interfere(int kind, int concerned) {
    if (!(watched & kind) || !concerned) return 0;
    seen++;
    if (!wanted || seen < wanted || (seen > wanted && !lasting)) return 0;
    if (fault < 0) { kill(getpid(), -fault); pause(); }
    hits++;
    errno = fault;
    return 1;
}

#define ON (armed && getpid() == owner)
#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int rename(const char *a, const char *b) {
    REAL(int, "rename", const char *, const char *);
    if (ON && interfere(RENAME, concerns(AT_FDCWD, b))) return -1;
    return real(a, b);
}
int renameat(int f, const char *a, int g, const char *b) {
    REAL(int, "renameat", int, const char *, int, const char *);
    if (ON && interfere(RENAME, concerns(g, b))) return -1;
    return real(f, a, g, b);
}
int renameat2(int f, const char *a, int g, const char *b, unsigned how) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    if (ON && interfere(RENAME, concerns(g, b))) return -1;
    return real(f, a, g, b, how);
}
ssize_t write(int n, const void *p, size_t s) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (ON && n > 2 && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, p, s);
}
ssize_t pwrite(int n, const void *p, size_t s, off_t o) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (ON && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, p, s, o);
}
ssize_t pwrite64(int n, const void *p, size_t s, off64_t o) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (ON && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, p, s, o);
}
ssize_t writev(int n, const struct iovec *v, int c) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (ON && n > 2 && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, v, c);
}
size_t fwrite(const void *p, size_t s, size_t c, FILE *f) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    if (ON && fileno(f) > 2 && interfere(WRITE, concerns_descriptor(fileno(f)))) return 0;
    return real(p, s, c, f);
}
int ftruncate(int n, off_t s) {
    REAL(int, "ftruncate", int, off_t);
    if (ON && s > 0 && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, s);
}
int ftruncate64(int n, off64_t s) {
    REAL(int, "ftruncate64", int, off64_t);
    if (ON && s > 0 && interfere(WRITE, concerns_descriptor(n))) return -1;
    return real(n, s);
}
int posix_fallocate(int n, off_t o, off_t s) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    if (ON && interfere(WRITE, concerns_descriptor(n))) return errno; /* returns the error */
    return real(n, o, s);
}
int posix_fallocate64(int n, off64_t o, off64_t s) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    if (ON && interfere(WRITE, concerns_descriptor(n))) return errno;
    return real(n, o, s);
}
ssize_t copy_file_range(int a, off64_t *x, int b, off64_t *y, size_t s, unsigned f) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    if (ON && interfere(WRITE, concerns_descriptor(b))) return -1;
    return real(a, x, b, y, s, f);
}
ssize_t sendfile(int b, int a, off_t *x, size_t s) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    if (ON && interfere(WRITE, concerns_descriptor(b))) return -1;
    return real(b, a, x, s);
}
ssize_t sendfile64(int b, int a, off64_t *x, size_t s) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    if (ON && interfere(WRITE, concerns_descriptor(b))) return -1;
    return real(b, a, x, s);
}

static int opening(int folder, const char *path, int flags) {
    if (!(flags & (O_WRONLY | O_RDWR | O_CREAT))) return 0;
    if (!concerns(folder, path)) return 0;
    if ((flags & O_CREAT) && interfere(CREATE, 1)) return 1;
    return interfere(WRITABLE, 1);
}
#define OPENING() \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list l; va_start(l, flags); mode = va_arg(l, mode_t); va_end(l); }
int open(const char *p, int flags, ...) {
    OPENING()
    REAL(int, "open", const char *, int, ...);
    if (ON && opening(AT_FDCWD, p, flags)) return -1;
    return real(p, flags, mode);
}
int open64(const char *p, int flags, ...) {
    OPENING()
    REAL(int, "open64", const char *, int, ...);
    if (ON && opening(AT_FDCWD, p, flags)) return -1;
    return real(p, flags, mode);
}
int openat(int f, const char *p, int flags, ...) {
    OPENING()
    REAL(int, "openat", int, const char *, int, ...);
    if (ON && opening(f, p, flags)) return -1;
    return real(f, p, flags, mode);
}
int openat64(int f, const char *p, int flags, ...) {
    OPENING()
    REAL(int, "openat64", int, const char *, int, ...);
    if (ON && opening(f, p, flags)) return -1;
    return real(f, p, flags, mode);
}
FILE *fopen(const char *p, const char *m) {
    REAL(FILE *, "fopen", const char *, const char *);
    if (ON && opening(AT_FDCWD, p, m[0] != 'r' ? O_WRONLY | O_CREAT : strchr(m, '+') ? O_RDWR : 0)) return NULL;
    return real(p, m);
}
FILE *fopen64(const char *p, const char *m) {
    REAL(FILE *, "fopen64", const char *, const char *);
    if (ON && opening(AT_FDCWD, p, m[0] != 'r' ? O_WRONLY | O_CREAT : strchr(m, '+') ? O_RDWR : 0)) return NULL;
    return real(p, m);
}
int mkdir(const char *p, mode_t m) {
    REAL(int, "mkdir", const char *, mode_t);
    if (ON && interfere(FOLDER, concerns(AT_FDCWD, p))) return -1;
    return real(p, m);
}
int unlink(const char *p) {
    REAL(int, "unlink", const char *);
    if (ON && interfere(REMOVE, concerns(AT_FDCWD, p))) return -1;
    return real(p);
}
int unlinkat(int f, const char *p, int how) {
    REAL(int, "unlinkat", int, const char *, int);
    if (ON && interfere(REMOVE, concerns(f, p))) return -1;
    return real(f, p, how);
}
int rmdir(const char *p) {
    REAL(int, "rmdir", const char *);
    if (ON && interfere(REMOVE, concerns(AT_FDCWD, p))) return -1;
    return real(p);
}
