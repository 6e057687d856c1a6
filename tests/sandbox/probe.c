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

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
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
