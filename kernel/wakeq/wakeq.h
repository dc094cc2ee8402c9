/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/wakeq: the interface.
 *
 * An open /dev/wakeq is a queue of threads that wait for events. Its policy decides whom an event wakes. A waiter takes an
 * event, as accept(2) does, or looks, as select(2) does: it returns when it was woken, and takes nothing.
 */
#ifndef _UAPI_WAKEQ_H
#define _UAPI_WAKEQ_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Whom an event wakes. */
/* All. Linux 2.2. */
#define WAKEQ_WAKE_ALL		0
/* The waiter decides: all that look, and one that takes. Linux since 2.3. */
#define WAKEQ_TASK_EXCLUSIVE	1
/* The waker decides: the waiter at the head, whoever it is. */
#define WAKEQ_WAKE_ONE		2
/* The waker decides, but a waiter can insist: one, and all that look. */
#define WAKEQ_ALWAYS_WAKE	3

/* How a thread waits. */
#define WAKEQ_TAKE		0
#define WAKEQ_LOOK		1

/**
 * struct wakeq_counters - what has happened since the policy was chosen
 * @woken: waiters that events have woken
 * @in_vain: waiters among them that came to take an event, found none, and went back to sleep
 * @settle_ns: of the last event: until the last waiter that it woke was asleep again or had left the queue; 0 until then
 * @events: events that nobody has taken yet
 * @asleep: waiters in the queue now
 * @unsettled: waiters that were woken, and have neither gone back to sleep nor left
 * @reserved: zero
 */
struct wakeq_counters {
	__u64 woken;
	__u64 in_vain;
	__u64 settle_ns;
	__u32 events;
	__u32 asleep;
	__u32 unsettled;
	__u32 reserved;
};

/* Chooses the policy, and begins to count anew; EBUSY while somebody waits. */
#define WAKEQ_POLICY		_IOW(0xD2, 0, __u32)
/* Waits: WAKEQ_TAKE or WAKEQ_LOOK. ESHUTDOWN after WAKEQ_END. */
#define WAKEQ_WAIT		_IOW(0xD2, 1, __u32)
/* An event. */
#define WAKEQ_WAKE		_IO(0xD2, 2)
/* There will be no more events: wakes all under every policy. */
#define WAKEQ_END		_IO(0xD2, 3)
#define WAKEQ_COUNTERS		_IOR(0xD2, 4, struct wakeq_counters)
/* Waits until so many waiters are asleep, and none is unsettled; ETIMEDOUT after half a minute. */
#define WAKEQ_UNTIL_ASLEEP	_IOW(0xD2, 5, __u32)
/* Both with one call: an event, and the caller sleeps at once, which leaves the processor to the waiters. */
#define WAKEQ_WAKE_AND_SLEEP	_IOW(0xD2, 6, __u32)

#endif
