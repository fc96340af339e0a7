/* Notes every write, truncation, sync and removal below a folder, in their order: the tests play power failures with them.

   Loaded with LD_PRELOAD; WRITES_FOLDER is the folder, and WRITES_LOG the file of the notes.  A note is a letter, the
   lengths of name and data (u32 each), the offset (i64), the name and the data. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int log_fd = -1;

static int name_of(int fd, char *name)
{
    char link[64];
    const char *folder = getenv("WRITES_FOLDER");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = folder ? readlink(link, name, 4000) : -1;
    if (n < 0)
        return 0;
    name[n] = 0;
    return strncmp(name, folder, strlen(folder)) == 0;
}

static void note(char op, const char *name, int64_t offset, const void *data, uint32_t size)
{
    char head[17];
    uint32_t length = strlen(name);
    if (log_fd < 0)
        log_fd = syscall(SYS_openat, AT_FDCWD, getenv("WRITES_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    head[0] = op;
    memcpy(head + 1, &length, 4);
    memcpy(head + 5, &size, 4);
    memcpy(head + 9, &offset, 8);
    syscall(SYS_write, log_fd, head, 17);
    syscall(SYS_write, log_fd, name, length);
    if (size)
        syscall(SYS_write, log_fd, data, size);
}

static void about(char op, int fd, int64_t offset, const void *data, ssize_t size)
{
    char name[4001];
    if (size >= 0 && name_of(fd, name))
        note(op, name, offset, data, op == 'w' ? size : 0);
}

#define NEXT(name, type) ((type)dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size)
{
    int64_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = NEXT(write, ssize_t (*)(int, const void *, size_t))(fd, data, size);
    about('w', fd, at, data, done);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    ssize_t done = NEXT(pwrite64, ssize_t (*)(int, const void *, size_t, off64_t))(fd, data, size, at);
    about('w', fd, at, data, done);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

int ftruncate64(int fd, off64_t size)
{
    int done = NEXT(ftruncate64, int (*)(int, off64_t))(fd, size);
    about('t', fd, size, 0, done);
    return done;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fsync(int fd)
{
    int done = NEXT(fsync, int (*)(int))(fd);
    about('s', fd, 0, 0, done);
    return done;
}

int fdatasync(int fd)
{
    int done = NEXT(fdatasync, int (*)(int))(fd);
    about('s', fd, 0, 0, done);
    return done;
}

int unlink(const char *path)
{
    char name[4001];
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), ours = fd >= 0 && name_of(fd, name);
    if (fd >= 0)
        close(fd);
    int done = NEXT(unlink, int (*)(const char *))(path);
    if (done == 0 && ours)
        note('u', name, 0, 0, 0);
    return done;
}
