/* Tries one thing that a sandbox forbids, and says what came of it. Nothing is ever written: what
 * can be opened is closed again at once. Static, so that it runs in a container without a libc. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int said(const char *what, long result) {
    if (result < 0)
        printf("%s refused %s\n", what, strerrorname_np(errno));
    else
        printf("%s ALLOWED\n", what);
    fflush(stdout);
    return 0;
}

static long to_unix(const char *name, int abstract) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0)
        return fd;
    strncpy(address.sun_path + abstract, name, sizeof address.sun_path - 2);
    return connect(fd, (struct sockaddr *)&address,
                   offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name));
}

static long to_inet(int type, const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = 2};
    int fd = socket(AF_INET, type, 0);
    if (fd < 0)
        return fd;
    inet_pton(AF_INET, host, &address.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return -1;
    return type == SOCK_DGRAM ? send(fd, "x", 1, 0) : 0;
}

static int forks(int most) {
    int made = 0;
    while (made < most) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            sleep(30);
            _exit(0);
        }
        made++;
    }
    printf("forks %d\n", made);
    return 0;
}

static int calls(void) {
    char attributes[256] = {0};
    int one = 1;
    said("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    said("umount", umount2("/proc", MNT_DETACH));
    said("chroot", chroot("/tmp"));
    said("mknod", mknod("device", S_IFCHR | 0600, 0x103));
    said("unshare-user", unshare(CLONE_NEWUSER));
    said("unshare-net", unshare(CLONE_NEWNET));
    said("clone-user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    said("setns", setns(open("/proc/self/ns/mnt", O_RDONLY), 0));
    said("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
    said("bpf", syscall(SYS_bpf, BPF_PROG_LOAD, attributes, sizeof attributes));
    said("perf", syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
    said("userfaultfd", syscall(SYS_userfaultfd, 0));
    said("io_uring", syscall(SYS_io_uring_setup, 1, attributes));
    said("handle", syscall(SYS_open_by_handle_at, AT_FDCWD, attributes, O_RDONLY));
    said("module", syscall(SYS_finit_module, 0, "", 0));
    said("kexec", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    said("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
    said("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    said("sethostname", sethostname("x", one));
    return 0;
}

/* Makes a socket, and a pair, of every family, and says which came to be. */
static int families(void) {
    int types[] = {SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET, SOCK_RAW};
    for (int family = 0; family < 48; family++) {
        int fd = -1, pair[2];
        for (int i = 0; i < 4 && fd < 0 && (i == 0 || errno != EPERM); i++)
            fd = socket(family, types[i], 0);
        printf("socket-%d %s\n", family, fd >= 0 ? "ALLOWED" : strerrorname_np(errno));
        int made = socketpair(family, SOCK_STREAM, 0, pair);
        printf("pair-%d %s\n", family, made >= 0 ? "ALLOWED" : strerrorname_np(errno));
    }
    return 0;
}

/* Does to another process, and then to itself, what needs no file and no signal. */
static int others(pid_t pid) {
    unsigned long limit[2] = {1024, 1024};
    char attributes[48] = {48}; /* its size; all else as usual */
    struct sched_param parameter = {0};
    unsigned long cpus = 1, nodes = 1;
    char buffer[256] = {0};
    void *page = buffer;
    int node = 0, state = 0;
    said("prlimit64", syscall(SYS_prlimit64, pid, 7, limit, NULL));
    said("sched_setaffinity", syscall(SYS_sched_setaffinity, pid, sizeof cpus, &cpus));
    said("sched_setparam", syscall(SYS_sched_setparam, pid, &parameter));
    said("sched_setscheduler", syscall(SYS_sched_setscheduler, pid, 0, &parameter));
    said("sched_setattr", syscall(SYS_sched_setattr, pid, attributes, 0));
    said("setpriority", syscall(SYS_setpriority, 0, pid, 19));
    said("setpriority-user", syscall(SYS_setpriority, 2, 0, 19));
    said("setpriority-group", syscall(SYS_setpriority, 1, 0, 19));
    said("ioprio_set", syscall(SYS_ioprio_set, 1, pid, 3 << 13));
    said("ioprio_set-user", syscall(SYS_ioprio_set, 3, geteuid(), 3 << 13));
    said("shmget", syscall(SYS_shmget, 4711, 4096, 01666));
    said("shmat", syscall(SYS_shmat, 0, NULL, 0));
    said("shmctl", syscall(SYS_shmctl, 0, 2, buffer));
    said("shmdt", syscall(SYS_shmdt, buffer));
    said("semget", syscall(SYS_semget, 4711, 1, 01666));
    said("semop", syscall(SYS_semop, 0, buffer, 1));
    said("semctl", syscall(SYS_semctl, 0, 0, 2, buffer));
    said("semtimedop", syscall(SYS_semtimedop, 0, buffer, 1, NULL));
    said("msgget", syscall(SYS_msgget, 4711, 01666));
    said("msgsnd", syscall(SYS_msgsnd, 0, buffer, 1, 04000));
    said("msgrcv", syscall(SYS_msgrcv, 0, buffer, 1, 0, 04000));
    said("msgctl", syscall(SYS_msgctl, 0, 2, buffer));
    said("mq_open", syscall(SYS_mq_open, "wick", 0102, 0666, NULL));
    said("mq_unlink", syscall(SYS_mq_unlink, "wick"));
    said("move_pages", syscall(SYS_move_pages, pid, 1, &page, &node, &state, 0));
    said("migrate_pages", syscall(SYS_migrate_pages, pid, 2, &nodes, &nodes));
    said("own-prlimit64", syscall(SYS_prlimit64, 0, 7, NULL, limit));
    said("own-setaffinity", syscall(SYS_sched_setaffinity, 0, sizeof cpus, &cpus));
    said("own-setscheduler", syscall(SYS_sched_setscheduler, 0, 0, &parameter));
    said("own-setpriority", syscall(SYS_setpriority, 0, 0, 19));
    said("own-ioprio_set", syscall(SYS_ioprio_set, 1, 0, 3 << 13));
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "families"))
        return families();
    if (!strcmp(what, "others"))
        return others(atoi(argv[2]));
    if (!strcmp(what, "calls"))
        return calls();
    if (!strcmp(what, "open"))
        for (int i = 2; i < argc; i++)
            said(argv[i], open(argv[i], O_WRONLY | O_CLOEXEC));
    if (!strcmp(what, "type"))
        return said("TIOCSTI", ioctl(0, TIOCSTI, "x"));
    if (!strcmp(what, "who"))
        return printf("euid %d\n", geteuid());
    if (!strcmp(what, "ptrace"))
        return said("ptrace", ptrace(PTRACE_SEIZE, atoi(argv[2]), NULL, NULL));
    if (!strcmp(what, "tcp"))
        return said("tcp", to_inet(SOCK_STREAM, argv[2], atoi(argv[3])));
    if (!strcmp(what, "udp"))
        return said("udp", to_inet(SOCK_DGRAM, argv[2], atoi(argv[3])));
    if (!strcmp(what, "unix"))
        return said("unix", to_unix(argv[2], 0));
    if (!strcmp(what, "abstract"))
        return said("abstract", to_unix(argv[2], 1));
    if (!strcmp(what, "forks"))
        return forks(atoi(argv[2]));
    if (!strcmp(what, "memory")) {
        size_t size = strtoul(argv[2], NULL, 10);
        volatile char *held = malloc(size);
        for (size_t at = 0; held && at < size; at += 4096)
            held[at] = 1;
        return said("memory", held ? 0 : -1);
    }
    return 0;
}
