/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/epoll: the interface.
 *
 * An open /dev/epoll is a set of descriptors with the events that are waited for. write(2) of an array of struct pollfd adds
 * to the set, replaces the events, or removes (POLLREMOVE). The device keeps two arrays of results, both mapped into the
 * process: files that wake their waiters write into one, while the process reads the other. EP_POLL exchanges them.
 *
 * What is reported are wake-ups, once each, and no states. A file that is ready when it is added is not reported until it
 * wakes its waiters again: try first, until EAGAIN, and wait then. A wake-up that does not tell for which events it is (the
 * end of a stream, of a connect) counts as all that the entry waits for, apart from POLLERR and POLLHUP.
 *
 * Set up: open(2), EP_ALLOC, mmap(2) of EP_MAP_SIZE() bytes at offset 0, to be read alone.
 */
#ifndef _UAPI_DEVEPOLL_H
#define _UAPI_DEVEPOLL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* In the events of a written entry: takes the descriptor out of the set. */
#define DEVEPOLL_REMOVE		0x1000

/* The most descriptors of a set. */
#define DEVEPOLL_MOST		(1024 * 128)

/* How many bytes are mapped for n descriptors: whole pages of struct pollfd, twice. */
#define EP_MAP_SIZE(n, page_size) \
	(2 * (((n) * 8ULL + (page_size) - 1) / (page_size) * (page_size)))

/**
 * struct devepoll_poll - what EP_POLL is asked for, and answers
 * @timeout_ns: how long to wait for the first wake-up, in nanoseconds; negative: without end
 * @ep_resoff: written: where the results begin in the mapped area, in bytes. They stay there until the next EP_POLL
 */
struct devepoll_poll {
	__s64 timeout_ns;
	__u64 ep_resoff;
};

/* Makes room for so many descriptors, rounded up to whole pages of results; again after EP_FREE alone. */
#define EP_ALLOC	_IOW(0xD1, 1, __u32)
/* Waits, and returns the number of results. One thread at a time: the next call has the results overwritten. */
#define EP_POLL		_IOWR(0xD1, 2, struct devepoll_poll)
/* Empties the set and frees the room; while nothing is mapped. */
#define EP_FREE		_IO(0xD1, 3)
/* The events of a descriptor in a struct pollfd: returns 1 and sets revents to them, or 0 if it is not in the set. */
#define EP_ISPOLLED	_IOWR(0xD1, 4, __u64)

#endif
