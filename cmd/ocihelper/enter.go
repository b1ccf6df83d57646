//go:build linux && cgo

package main

/*
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void give_up(const char *what)
{
	dprintf(STDERR_FILENO, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

// same maps the ids of the parent's new user namespace to the same ids of this process's.
static void same(const char *file)
{
	char from[32], to[32], text[4096];
	unsigned long inside, outside, size;
	int used = 0, fd;
	FILE *have;

	snprintf(from, sizeof from, "/proc/self/%s", file);
	snprintf(to, sizeof to, "/proc/%d/%s", getppid(), file);
	have = fopen(from, "re");
	if (have == NULL)
		give_up(from);
	while (fscanf(have, "%lu %lu %lu", &inside, &outside, &size) == 3 && used < (int)sizeof text - 100)
		used += snprintf(text + used, sizeof text - used, "%lu %lu %lu\n", inside, inside, size);
	fclose(have);
	fd = open(to, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, used) != used)
		give_up(to);
	close(fd);
}

// enter is done before Go has threads: only a process with one thread may enter a user namespace.
//
//	ocihelper enter NAMESPACE PROGRAM ARGV0 ARGS…
//
// makes a user namespace below the one whose descriptor is NAMESPACE, with the same ids, and executes in it the
// descriptor PROGRAM.
__attribute__((constructor)) static void enter(int argc, char **argv)
{
	int namespace, program, go[2], done;
	char path[32], byte = 0;
	pid_t child;

	if (argc < 5 || strcmp(argv[1], "enter") != 0)
		return;
	namespace = atoi(argv[2]);
	program = atoi(argv[3]);
	if (setns(namespace, CLONE_NEWUSER) != 0)
		give_up("the user namespace of the node cannot be entered");
	close(namespace);
	// Where pods have more ids than one, nothing of them is to have the groups of the user who has started them.
	if (setgroups(0, NULL) != 0 && errno != EPERM)
		give_up("the groups of the user");
	// The files of /proc that map ids belong to this user only while the process may be looked at.
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0 || pipe2(go, O_CLOEXEC) != 0)
		give_up("the user namespace of the pod");
	child = fork();
	if (child < 0)
		give_up("the user namespace of the pod");
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		same("uid_map");
		same("gid_map");
		_exit(0);
	}
	close(go[0]);
	if (unshare(CLONE_NEWUSER) != 0)
		give_up("no user namespace can be made for the pod");
	if (write(go[1], &byte, 1) != 1 || waitpid(child, &done, 0) != child)
		give_up("the ids of the pod's user namespace");
	if (done != 0)
		_exit(1);
	close(go[1]);
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0 || fcntl(program, F_SETFD, FD_CLOEXEC) != 0)
		give_up("the program");
	snprintf(path, sizeof path, "/proc/self/fd/%d", program);
	execv(path, argv + 4);
	give_up("the program cannot be executed");
}
*/
import "C"
