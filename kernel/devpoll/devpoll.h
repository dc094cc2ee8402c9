/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/poll: the interface.
 *
 * An open /dev/poll is a set of descriptors with the events that are waited for. write(2) of an array of struct pollfd adds
 * to the set, replaces, or removes (POLLREMOVE). DP_POLL returns those that are ready.
 */
#ifndef _UAPI_DEVPOLL_H
#define _UAPI_DEVPOLL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* In the events of a written entry: takes the descriptor out of the set. */
#define DEVPOLL_REMOVE		0x1000

/*
 * How DP_POLL finds what is ready. Zero: it asks every file of the set.
 */
/* It asks those files alone that have woken their waiters since they were asked last, or were ready then. */
#define DEVPOLL_HINTS		(1U << 0)
/* It walks the buckets of the hash table that the set is kept in. */
#define DEVPOLL_WALK		(1U << 1)
/* It holds a lock that all open devices share. */
#define DEVPOLL_LOCK		(1U << 2)
/* Files that may be ready are in a list: nothing else is looked at. What epoll(7) does. */
#define DEVPOLL_READY_LIST	(1U << 3)

/**
 * struct devpoll_poll - what DP_POLL is asked for
 * @results: address of an array of struct pollfd; 0: the mapped result area
 * @timeout_ns: how long to wait for the first ready file, in nanoseconds; negative: without end
 * @count: how many results there may be
 * @reserved: zero
 */
struct devpoll_poll {
	__u64 results;
	__s64 timeout_ns;
	__u32 count;
	__u32 reserved;
};

/* Chooses how DP_POLL finds what is ready; while the set is empty. */
#define DP_MODE			_IOW(0xD0, 0, __u32)
/* Waits, and returns the number of results. */
#define DP_POLL			_IOW(0xD0, 1, struct devpoll_poll)
/* The events of a descriptor in a struct pollfd: returns 1 and sets revents to them, or 0 if it is not in the set. */
#define DP_ISPOLLED		_IOWR(0xD0, 2, __u64)
/* How many files have been asked so far: the cost that hints save. */
#define DP_ASKED		_IOR(0xD0, 4, __u64)
/* Makes room for so many results, to be mapped by mmap(2) with offset 0; once. */
#define DP_ALLOC		_IOW(0xD0, 3, __u32)

#endif
