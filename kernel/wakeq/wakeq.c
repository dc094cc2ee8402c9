// SPDX-License-Identifier: GPL-2.0
/*
 * The four ways to wake the threads that wait for a connection, after Molloy and Lever (accept() Scalability on Linux, 2000),
 * on the kernel's own wait queue.
 *
 * Linux 2.2 woke all; the paper compares that with two patches, and describes a third. Today's __wake_up() walks from the
 * head, wakes every entry without WQ_FLAG_EXCLUSIVE, and stops after as many entries with the flag as it was told. All four
 * policies can be said by which entries have the flag, and where they stand: see is_exclusive().
 *
 * Contexts and lifetimes. Everything runs in process context, but on_wake(), which runs with the queue's lock held and
 * interrupts off. A waiter is on the stack of its thread; the thread takes it out of the queue before it returns. A thread
 * that waits is in a system call on the open device, which therefore stays open. The queue's lock protects all of struct
 * wakeq.
 */
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "wakeq.h"
#include "guest_only.h"

/* How long WAKEQ_UNTIL_ASLEEP waits at most. */
#define PATIENCE	(30 * HZ)

/**
 * struct wakeq - an open /dev/wakeq
 * @queue: the waiters; its lock protects everything here
 * @observers: callers of WAKEQ_UNTIL_ASLEEP; with a lock of its own
 * @policy: WAKEQ_WAKE_ALL and so on
 * @ended: there will be no more events
 * @waiters: threads in WAKEQ_WAIT
 * @event_at: when the last event came, in nanoseconds of the monotonic clock
 * @counters: what WAKEQ_COUNTERS returns
 */
struct wakeq {
	wait_queue_head_t queue;
	wait_queue_head_t observers;
	u32 policy;
	bool ended;
	unsigned int waiters;
	u64 event_at;
	struct wakeq_counters counters;
};

/**
 * struct wakeq_waiter - a thread in WAKEQ_WAIT
 * @entry: in the queue
 * @wakeq: whose
 * @woken: an event has woken it, and it has neither slept again nor left
 * @asleep: it is counted among those asleep
 */
struct wakeq_waiter {
	wait_queue_entry_t entry;
	struct wakeq *wakeq;
	bool woken;
	bool asleep;
};

/* A waiter sleeps no longer. The queue's lock is held. */
static void count_awake(struct wakeq_waiter *waiter)
{
	if (waiter->asleep)
		waiter->wakeq->counters.asleep--;
	waiter->asleep = false;
}

/* An entry is chosen: the queue's lock is held, interrupts are off. */
static int on_wake(wait_queue_entry_t *entry, unsigned int mode, int flags, void *key)
{
	struct wakeq_waiter *waiter = container_of(entry, struct wakeq_waiter, entry);
	struct wakeq *wakeq = waiter->wakeq;
	/* Takes the entry out of the queue, as for every sleeper of today. In 2.2 the thread did so itself, once it ran. */
	int woke = autoremove_wake_function(entry, mode, flags, key);

	if (woke)
		count_awake(waiter);
	if (woke && !wakeq->ended) {
		waiter->woken = true;
		wakeq->counters.woken++;
		wakeq->counters.unsettled++;
	}
	return woke;
}

/* Whether a wake-up ends with this waiter. */
static bool is_exclusive(const struct wakeq *wakeq, u32 manner)
{
	switch (wakeq->policy) {
	case WAKEQ_WAKE_ALL:
		return false;
	case WAKEQ_WAKE_ONE:
		/* The waker has asked for one: nobody's wish counts. */
		return true;
	default:
		/*
		 * The waiter's wish counts: that is task exclusive. That it is the waker who asks for one makes it always wake;
		 * in today's queue this is the same code, since wake_up() always asks for one, and wake_up_all() is there too.
		 */
		return manner == WAKEQ_TAKE;
	}
}

/* A woken waiter is about to sleep again, or to leave. The queue's lock is held. */
static void settle(struct wakeq_waiter *waiter)
{
	struct wakeq_counters *counters = &waiter->wakeq->counters;

	if (!waiter->woken)
		return;
	waiter->woken = false;
	if (!--counters->unsettled)
		counters->settle_ns = ktime_get_ns() - waiter->wakeq->event_at;
}

/* Whether a waiter, which is in the queue or was woken, is to return: 0 or an error, or 1 if it is to sleep. */
static int look(struct wakeq_waiter *waiter, u32 manner)
{
	struct wakeq *wakeq = waiter->wakeq;
	bool is_calm;
	int outcome = 1;

	spin_lock_irq(&wakeq->queue.lock);
	if (wakeq->ended) {
		outcome = -ESHUTDOWN;
	} else if (manner == WAKEQ_LOOK && waiter->woken) {
		outcome = 0;
	} else if (manner == WAKEQ_TAKE && wakeq->counters.events) {
		wakeq->counters.events--;
		outcome = 0;
	} else if (waiter->woken) {
		wakeq->counters.in_vain++;
	}
	settle(waiter);
	is_calm = !wakeq->counters.unsettled;
	/* An event may have taken it out of the queue already: then it does not sleep. */
	if (outcome > 0 && !waiter->asleep && !list_empty(&waiter->entry.entry)) {
		waiter->asleep = true;
		wakeq->counters.asleep++;
	}
	spin_unlock_irq(&wakeq->queue.lock);
	if (outcome > 0 && is_calm)
		wake_up(&wakeq->observers);
	/* After the events: an exclusive waiter that takes the wake-up with it would leave its event to nobody. */
	if (outcome > 0 && signal_pending(current))
		outcome = -EINTR;
	return outcome;
}

static long wait_for_event(struct wakeq *wakeq, u32 manner)
{
	struct wakeq_waiter waiter = { .wakeq = wakeq };
	int outcome;

	if (manner > WAKEQ_LOOK)
		return -EINVAL;
	init_waitqueue_func_entry(&waiter.entry, on_wake);
	waiter.entry.private = current;
	INIT_LIST_HEAD(&waiter.entry.entry);
	spin_lock_irq(&wakeq->queue.lock);
	wakeq->waiters++;
	spin_unlock_irq(&wakeq->queue.lock);
	for (;;) {
		/* At the tail with the flag, at the head without. The policy cannot change while somebody waits. */
		if (is_exclusive(wakeq, manner))
			prepare_to_wait_exclusive(&wakeq->queue, &waiter.entry, TASK_INTERRUPTIBLE);
		else
			prepare_to_wait(&wakeq->queue, &waiter.entry, TASK_INTERRUPTIBLE);
		outcome = look(&waiter, manner);
		if (outcome <= 0)
			break;
		schedule();
	}
	finish_wait(&wakeq->queue, &waiter.entry);
	spin_lock_irq(&wakeq->queue.lock);
	/* An event may have woken it since it looked. */
	settle(&waiter);
	count_awake(&waiter);
	wakeq->waiters--;
	spin_unlock_irq(&wakeq->queue.lock);
	return outcome;
}

static long wake(struct wakeq *wakeq)
{
	spin_lock_irq(&wakeq->queue.lock);
	wakeq->counters.events++;
	wakeq->counters.settle_ns = 0;
	wakeq->event_at = ktime_get_ns();
	spin_unlock_irq(&wakeq->queue.lock);
	/* One, beside all that have no flag. */
	wake_up_interruptible(&wakeq->queue);
	return 0;
}

static long end(struct wakeq *wakeq)
{
	spin_lock_irq(&wakeq->queue.lock);
	wakeq->ended = true;
	spin_unlock_irq(&wakeq->queue.lock);
	wake_up_interruptible_all(&wakeq->queue);
	return 0;
}

static long set_policy(struct wakeq *wakeq, u32 policy)
{
	long error = 0;

	if (policy > WAKEQ_ALWAYS_WAKE)
		return -EINVAL;
	spin_lock_irq(&wakeq->queue.lock);
	if (wakeq->waiters) {
		error = -EBUSY;
	} else {
		wakeq->policy = policy;
		memset(&wakeq->counters, 0, sizeof(wakeq->counters));
	}
	spin_unlock_irq(&wakeq->queue.lock);
	return error;
}

static struct wakeq_counters read_counters(struct wakeq *wakeq)
{
	struct wakeq_counters counters;

	spin_lock_irq(&wakeq->queue.lock);
	counters = wakeq->counters;
	spin_unlock_irq(&wakeq->queue.lock);
	return counters;
}

static long put_counters(struct wakeq *wakeq, void __user *to)
{
	struct wakeq_counters counters = read_counters(wakeq);

	return copy_to_user(to, &counters, sizeof(counters)) ? -EFAULT : 0;
}

static bool are_asleep(struct wakeq *wakeq, u32 count)
{
	struct wakeq_counters counters = read_counters(wakeq);

	return counters.asleep == count && !counters.unsettled;
}

static long until_asleep(struct wakeq *wakeq, u32 count)
{
	long left = wait_event_interruptible_timeout(wakeq->observers, are_asleep(wakeq, count), PATIENCE);

	return left > 0 ? 0 : left ?: -ETIMEDOUT;
}

static long wakeq_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct wakeq *wakeq = file->private_data;
	void __user *user = (void __user *)argument;
	u32 number;

	switch (command) {
	case WAKEQ_POLICY:
	case WAKEQ_WAIT:
	case WAKEQ_UNTIL_ASLEEP:
	case WAKEQ_WAKE_AND_SLEEP:
		if (get_user(number, (u32 __user *)user))
			return -EFAULT;
		if (command == WAKEQ_POLICY)
			return set_policy(wakeq, number);
		if (command == WAKEQ_WAIT)
			return wait_for_event(wakeq, number);
		if (command == WAKEQ_WAKE_AND_SLEEP)
			wake(wakeq);
		return until_asleep(wakeq, number);
	case WAKEQ_WAKE:
		return wake(wakeq);
	case WAKEQ_END:
		return end(wakeq);
	case WAKEQ_COUNTERS:
		return put_counters(wakeq, user);
	default:
		return -ENOTTY;
	}
}

static int wakeq_open(struct inode *inode, struct file *file)
{
	struct wakeq *wakeq = kzalloc(sizeof(*wakeq), GFP_KERNEL_ACCOUNT);

	if (!wakeq)
		return -ENOMEM;
	init_waitqueue_head(&wakeq->queue);
	init_waitqueue_head(&wakeq->observers);
	file->private_data = wakeq;
	return 0;
}

/* The last reference to the device is gone, and nobody waits. */
static int wakeq_release(struct inode *inode, struct file *file)
{
	struct wakeq *wakeq = file->private_data;

	WARN_ON_ONCE(wakeq->waiters);
	kfree(wakeq);
	return 0;
}

static const struct file_operations wakeq_operations = {
	.owner = THIS_MODULE,
	.open = wakeq_open,
	.release = wakeq_release,
	.unlocked_ioctl = wakeq_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice wakeq_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "wakeq",
	.fops = &wakeq_operations,
	.mode = 0666,
};

static int __init wakeq_init(void)
{
	return guest_only() ?: misc_register(&wakeq_device);
}

static void __exit wakeq_exit(void)
{
	misc_deregister(&wakeq_device);
}

module_init(wakeq_init);
module_exit(wakeq_exit);
MODULE_DESCRIPTION("Wait queues with the policies of 2000");
MODULE_LICENSE("GPL");
