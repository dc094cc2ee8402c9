/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/sigperfd: the interface.
 *
 * At most one queued signal per descriptor for a thread that asks for it, and sigtimedwait4(): many queued signals with one
 * call.
 */
#ifndef _UAPI_SIGPERFD_H
#define _UAPI_SIGPERFD_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* What SIGPERFD_MODE asks for. */
/* The kernel queues signals as ever. The end of SIGPERFD_COUNT and of SIGPERFD_MERGE. */
#define SIGPERFD_OFF		0
/* The same, and they are counted. */
#define SIGPERFD_COUNT		1
/*
 * An event of a descriptor that has a queued signal is merged into it: si_band has the bits of all events, and si_errno
 * says how many events were merged. POLLERR is in the si_band of a signal with merged events only if there was an error;
 * that of any other signal has it for a hang-up too, as always.
 */
#define SIGPERFD_MERGE		2

/**
 * struct sigperfd_counters - what has happened since the device was opened
 * @queued: events that became a queued signal
 * @merged: events that were merged into a queued signal
 * @overflows: events that found no room in the queue; the thread got SIGIO
 * @descriptors: how many descriptors have the mark of a queued signal now
 * @mode: the mode now; SIGPERFD_OFF when the thread has ended
 */
struct sigperfd_counters {
	__u64 queued;
	__u64 merged;
	__u64 overflows;
	__u32 descriptors;
	__u32 mode;
};

/**
 * struct sigperfd_wait - what SIGPERFD_WAIT is asked for
 * @signals: the signals to take: bit n - 1 for signal n; those that the thread does not block are delivered instead
 * @infos: address of an array of siginfo_t
 * @timeout_ns: how long to wait for the first signal, in nanoseconds; negative: without end
 * @count: how many signals there may be
 * @reserved: zero
 */
struct sigperfd_wait {
	__u64 signals;
	__u64 infos;
	__s64 timeout_ns;
	__u32 count;
	__u32 reserved;
};

/* The mode of the calling thread, which a single open device can change: EBUSY for any other. */
#define SIGPERFD_MODE		_IOW(0xD1, 0, __u32)
#define SIGPERFD_COUNTERS	_IOR(0xD1, 1, struct sigperfd_counters)
/* sigtimedwait4(): returns the number of signals; 0 when the time is over. */
#define SIGPERFD_WAIT		_IOW(0xD1, 2, struct sigperfd_wait)

#endif
