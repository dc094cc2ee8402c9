// SPDX-License-Identifier: GPL-2.0
/*
 * One queued signal per descriptor, after the patches of Chandra and Mosberger (signal-per-fd) and of Luban (O_ONESIGFD) for
 * Linux 2.4, and sigtimedwait4(), which Provos, Lever and Tweedie proposed.
 *
 * fcntl(2) (O_ASYNC, F_SETSIG) has the kernel queue a signal for each event of a descriptor. A thread that is watched
 * (struct sigperfd_watch) has a bit for each of its descriptors. Where the patches changed the kernel's functions, the module
 * hooks into them:
 *
 * - send_sigio_to_task() is about to queue a signal: on_send(), a kprobe. If the descriptor's bit is set and its signal is
 *   found in the queue, the event is merged into that signal, and the function returns without having begun.
 * - The signal was queued, or there was no room: on_generate(), at the tracepoint signal_generate. It sets the bit.
 * - dequeue_signal() has taken a signal: on_dequeued(), a return probe. It clears the bit.
 *
 * A bit without a signal does no harm: signals that were thrown away (sigaction(2) with SIG_IGN) leave their bits, and so
 * would a return that the probe missed. The next event of such a descriptor looks for the signal, finds none, and is queued.
 * Two processors that report events of one descriptor at the same moment may both find the bit clear: then there are two
 * signals.
 *
 * Lifetimes. A watch lives from SIGPERFD_MODE until SIGPERFD_OFF, the end of its thread (on_exit(), at the tracepoint
 * sched_process_exit) or the last close of the device, whichever comes first. A thread is told by its struct pid, to which
 * the watch has a reference, so that no later thread can be taken for it; a child of fork(2) is another thread; exec(2) keeps
 * the thread, and closes the device unless it was told otherwise. The hooks find watches in a hash table under RCU: they run
 * without preemption, and a watch, its bits and its open device are freed a grace period later.
 *
 * Locks: watches_lock (process context) protects the table, and which watch belongs to which open device. Bits and counters
 * change with the siglock of the watched thread held, which is taken by the kernel for all hooks but on_send().
 */
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/ptrace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <trace/events/sched.h>
#include <trace/events/signal.h>

#include "sigperfd.h"
#include "guest_only.h"

/* Bits for no more descriptors than this, whatever RLIMIT_NOFILE says. Events of others are queued as ever. */
#define DESCRIPTORS_MOST	(1UL << 20)
/* How many signals are taken with interrupts off. */
#define TAKEN_AT_ONCE		16

/* dequeue_signal(mask, info, type); older kernels have the task before that. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define dequeue_of_current(mask, info, type)	dequeue_signal(current, mask, info, type)
#define DEQUEUE_INFO	2
#else
#define dequeue_of_current(mask, info, type)	dequeue_signal(mask, info, type)
#define DEQUEUE_INFO	1
#endif

struct sigperfd_watch;

/**
 * struct sigperfd - an open /dev/sigperfd
 * @watch: of the thread whose mode it has changed, or NULL; protected by watches_lock
 * @queued: see struct sigperfd_counters
 * @merged: the same
 * @overflows: the same
 * @rcu: frees it
 */
struct sigperfd {
	struct sigperfd_watch *watch;
	u64 queued;
	u64 merged;
	u64 overflows;
	struct rcu_head rcu;
};

/**
 * struct sigperfd_watch - a thread whose signals are counted or merged
 * @by_owner: in the table
 * @owner: the thread
 * @device: on whose behalf
 * @mode: SIGPERFD_COUNT or SIGPERFD_MERGE
 * @size: for how many descriptors there are bits
 * @rcu: frees it
 * @bits: the descriptors that have a queued signal
 */
struct sigperfd_watch {
	struct hlist_node by_owner;
	struct pid *owner;
	struct sigperfd *device;
	u32 mode;
	u32 size;
	struct rcu_head rcu;
	unsigned long bits[];
};

static DEFINE_HASHTABLE(watches, 8);
static DEFINE_SPINLOCK(watches_lock);

/* Any context, under RCU or watches_lock. */
static struct sigperfd_watch *watch_of(const struct pid *owner)
{
	struct sigperfd_watch *watch;

	hash_for_each_possible_rcu(watches, watch, by_owner, (unsigned long)owner,
				   lockdep_is_held(&watches_lock))
		if (watch->owner == owner)
			return watch;
	return NULL;
}

/* Ends a watch. watches_lock held. */
static void end_watch(struct sigperfd_watch *watch)
{
	hash_del_rcu(&watch->by_owner);
	watch->device->watch = NULL;
	put_pid(watch->owner);
	kvfree_rcu(watch, rcu);
}

/* Whether a signal is one that F_SETSIG asks for. */
static bool is_event(int signal, const kernel_siginfo_t *info)
{
	return signal >= SIGRTMIN && info->si_code >= POLL_IN && info->si_code <= POLL_HUP;
}

/* What an event adds to si_band. The kernel adds EPOLLERR to a hang-up, which would hide whether there was an error too. */
static long band_of(int reason)
{
	static const __poll_t bands[NSIGPOLL] = {
		[POLL_IN - POLL_IN] = EPOLLIN | EPOLLRDNORM,
		[POLL_OUT - POLL_IN] = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND,
		[POLL_MSG - POLL_IN] = EPOLLIN | EPOLLRDNORM | EPOLLMSG,
		[POLL_ERR - POLL_IN] = EPOLLERR,
		[POLL_PRI - POLL_IN] = EPOLLPRI | EPOLLRDBAND,
		[POLL_HUP - POLL_IN] = EPOLLHUP,
	};

	if (reason < POLL_IN || reason - POLL_IN >= NSIGPOLL)
		return 0;
	return mangle_poll(bands[reason - POLL_IN]);
}

/* Adds an event to the queued signal of its descriptor. Returns whether there is one. The siglock is held. */
static bool merge_into(struct sigpending *pending, int signal, int fd, int reason)
{
	struct sigqueue *queued;

	list_for_each_entry(queued, &pending->list, list) {
		kernel_siginfo_t *info = &queued->info;

		if (info->si_signo != signal || !is_event(signal, info) || info->si_fd != fd)
			continue;
		if (!info->si_errno)
			info->si_band = band_of(info->si_code);
		info->si_band |= band_of(reason);
		info->si_errno++;
		return true;
	}
	return false;
}

/* Merges an event, if its descriptor has a queued signal. Any context, interrupts off, under RCU. */
static bool merge(struct sigperfd_watch *watch, struct task_struct *task, enum pid_type type,
		  int signal, int fd, int reason)
{
	struct sighand_struct *sighand = rcu_dereference(task->sighand);
	bool merged = false;

	if (!sighand)
		return false;
	/* As lock_task_sighand(), which modules cannot call. The memory stays a sighand_struct's until the grace period ends. */
	spin_lock(&sighand->siglock);
	if (sighand == rcu_access_pointer(task->sighand)) {
		struct sigpending *pending = type == PIDTYPE_PID ? &task->pending :
								   &task->signal->shared_pending;

		merged = merge_into(pending, signal, fd, reason);
		if (merged)
			watch->device->merged++;
	}
	spin_unlock(&sighand->siglock);
	return merged;
}

/* Where a call that is not to be made continues: at its end. */
static noinline notrace void return_at_once(void)
{
}

/*
 * send_sigio_to_task(task, owner, fd, reason, type) begins. Any context: interrupts are off, the file's owner is locked, and
 * the siglock is not.
 */
static int on_send(struct kprobe *probe, struct pt_regs *regs)
{
	struct task_struct *task = (struct task_struct *)regs_get_kernel_argument(regs, 0);
	struct fown_struct *owner = (struct fown_struct *)regs_get_kernel_argument(regs, 1);
	unsigned int fd = regs_get_kernel_argument(regs, 2);
	int reason = regs_get_kernel_argument(regs, 3);
	enum pid_type type = regs_get_kernel_argument(regs, 4);
	struct sigperfd_watch *watch;
	bool merged = false;

	rcu_read_lock();
	watch = watch_of(task_pid(task));
	if (watch && watch->mode == SIGPERFD_MERGE && fd < watch->size && test_bit(fd, watch->bits))
		merged = merge(watch, task, type, READ_ONCE(owner->signum), fd, reason);
	rcu_read_unlock();
	if (!merged)
		return 0;
	instruction_pointer_set(regs, (unsigned long)return_at_once);
	return 1;
}

/* That there is one tells the kernel that on_send() changes where the processor goes on. */
static void after_send(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe send_probe = {
	.symbol_name = "send_sigio_to_task",
	.pre_handler = on_send,
	.post_handler = after_send,
};

/* A signal was generated. Any context, with the siglock of its thread held. */
static void on_generate(void *data, int signal, struct kernel_siginfo *info, struct task_struct *task,
			int group, int result)
{
	struct sigperfd_watch *watch = watch_of(task_pid(task));

	if (!watch || info <= SEND_SIG_PRIV || !is_event(signal, info))
		return;
	if (result == TRACE_SIGNAL_OVERFLOW_FAIL)
		watch->device->overflows++;
	if (result != TRACE_SIGNAL_DELIVERED)
		return;
	watch->device->queued++;
	if ((unsigned int)info->si_fd < watch->size)
		set_bit(info->si_fd, watch->bits);
}

/**
 * struct sigperfd_dequeue - a call of dequeue_signal()
 * @info: where it puts the signal
 * @type: where it says whose queue it was from: the thread's or the process's
 */
struct sigperfd_dequeue {
	kernel_siginfo_t *info;
	enum pid_type *type;
};

/* dequeue_signal() begins, in process context, with the siglock held. Returns 1 if its end is of no interest. */
static int on_dequeue(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct sigperfd_dequeue *call = (struct sigperfd_dequeue *)instance->data;

	call->info = (kernel_siginfo_t *)regs_get_kernel_argument(regs, DEQUEUE_INFO);
	call->type = (enum pid_type *)regs_get_kernel_argument(regs, DEQUEUE_INFO + 1);
	return !watch_of(task_pid(current)) && !watch_of(task_tgid(current));
}

/* dequeue_signal() has ended: as on_dequeue(). */
static int on_dequeued(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct sigperfd_dequeue *call = (struct sigperfd_dequeue *)instance->data;
	struct sigperfd_watch *watch;
	int signal = regs_return_value(regs);

	if (signal <= 0 || !is_event(signal, call->info))
		return 0;
	rcu_read_lock();
	/* The signals of a process are sent to its first thread, and taken by any. */
	watch = watch_of(*call->type == PIDTYPE_PID ? task_pid(current) : task_tgid(current));
	if (watch && (unsigned int)call->info->si_fd < watch->size)
		clear_bit(call->info->si_fd, watch->bits);
	rcu_read_unlock();
	return 0;
}

static struct kretprobe dequeue_probe = {
	.kp.symbol_name = "dequeue_signal",
	.entry_handler = on_dequeue,
	.handler = on_dequeued,
	.data_size = sizeof(struct sigperfd_dequeue),
};

/* A thread ends: process context, without preemption. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
static void on_exit(void *data, struct task_struct *task)
#else
static void on_exit(void *data, struct task_struct *task, bool group_dead)
#endif
{
	struct sigperfd_watch *watch;

	if (!watch_of(task_pid(task)))
		return;
	spin_lock(&watches_lock);
	watch = watch_of(task_pid(task));
	if (watch)
		end_watch(watch);
	spin_unlock(&watches_lock);
}

/* SIGPERFD_MODE: process context. */
static long set_mode(struct sigperfd *device, u32 mode)
{
	size_t size = min(rlimit_max(RLIMIT_NOFILE), DESCRIPTORS_MOST);
	struct sigperfd_watch *watch;
	long error = 0;

	if (mode == SIGPERFD_OFF) {
		spin_lock(&watches_lock);
		if (device->watch)
			end_watch(device->watch);
		spin_unlock(&watches_lock);
		return 0;
	}
	if (mode > SIGPERFD_MERGE)
		return -EINVAL;
	watch = kvzalloc(struct_size(watch, bits, BITS_TO_LONGS(size)), GFP_KERNEL_ACCOUNT);
	if (!watch)
		return -ENOMEM;
	watch->owner = get_pid(task_pid(current));
	watch->device = device;
	watch->mode = mode;
	watch->size = size;
	spin_lock(&watches_lock);
	if (device->watch || watch_of(watch->owner)) {
		error = -EBUSY;
	} else {
		device->watch = watch;
		hash_add_rcu(watches, &watch->by_owner, (unsigned long)watch->owner);
	}
	spin_unlock(&watches_lock);
	if (error) {
		put_pid(watch->owner);
		kvfree(watch);
	}
	return error;
}

/* SIGPERFD_COUNTERS: process context. */
static long put_counters(struct sigperfd *device, void __user *to)
{
	struct sigperfd_counters counters = {
		.queued = READ_ONCE(device->queued),
		.merged = READ_ONCE(device->merged),
		.overflows = READ_ONCE(device->overflows),
	};

	spin_lock(&watches_lock);
	if (device->watch) {
		counters.mode = device->watch->mode;
		counters.descriptors = bitmap_weight(device->watch->bits, device->watch->size);
	}
	spin_unlock(&watches_lock);
	return copy_to_user(to, &counters, sizeof(counters)) ? -EFAULT : 0;
}

/* Takes queued signals that are not in @others, and returns how many. Process context. */
static unsigned int take(sigset_t *others, kernel_siginfo_t *infos, unsigned int most)
{
	unsigned int count = 0;
	enum pid_type type;

	spin_lock_irq(&current->sighand->siglock);
	while (count < most && dequeue_of_current(others, &infos[count], &type))
		count++;
	spin_unlock_irq(&current->sighand->siglock);
	return count;
}

/* Takes queued signals, and writes them to the caller's array. Returns how many. Process context. */
static long take_to_user(sigset_t *others, siginfo_t __user *to, unsigned int most)
{
	kernel_siginfo_t infos[TAKEN_AT_ONCE];
	unsigned int count = 0, taken, i;

	do {
		taken = take(others, infos, min_t(unsigned int, most - count, TAKEN_AT_ONCE));
		for (i = 0; i < taken; i++, count++) {
			char __user *at = (char __user *)&to[count];

			/* A siginfo_t ends with bytes that the kernel does not keep. */
			if (copy_to_user(at, &infos[i], sizeof(infos[i])) ||
			    clear_user(at + sizeof(infos[i]), sizeof(siginfo_t) - sizeof(infos[i])))
				return -EFAULT;
		}
	} while (taken == TAKEN_AT_ONCE && count < most);
	return count;
}

/*
 * Sleeps until a signal comes that is not in @others, or one that the thread does not block. As do_sigtimedwait(): the
 * thread unblocks the signals meanwhile, so that they wake it, and real_blocked tells the senders that they are to be queued
 * nevertheless. Returns 0 when the time is over. Process context.
 */
static int sleep_until_signal(const sigset_t *others, ktime_t *timeout)
{
	sigset_t blocked;
	int outcome;

	spin_lock_irq(&current->sighand->siglock);
	blocked = current->blocked;
	current->real_blocked = blocked;
	sigandsets(&current->blocked, &blocked, others);
	recalc_sigpending();
	spin_unlock_irq(&current->sighand->siglock);

	/* A signal that has come since makes schedule() return at once. */
	__set_current_state(TASK_INTERRUPTIBLE);
	outcome = schedule_hrtimeout_range(timeout, current->timer_slack_ns, HRTIMER_MODE_REL);

	sigprocmask(SIG_SETMASK, &blocked, NULL);
	spin_lock_irq(&current->sighand->siglock);
	sigemptyset(&current->real_blocked);
	spin_unlock_irq(&current->sighand->siglock);
	return outcome;
}

/* SIGPERFD_WAIT: process context. */
static long wait_for_signals(const struct sigperfd_wait *asked)
{
	siginfo_t __user *to = u64_to_user_ptr(asked->infos);
	sigset_t others = { .sig = { ~asked->signals } };
	ktime_t timeout = asked->timeout_ns;
	long count;

	if (asked->reserved || !asked->count)
		return -EINVAL;
	/* Nobody can wait for these. */
	sigaddset(&others, SIGKILL);
	sigaddset(&others, SIGSTOP);
	count = take_to_user(&others, to, asked->count);
	if (!count && timeout) {
		int outcome = sleep_until_signal(&others, timeout < 0 ? NULL : &timeout);

		count = take_to_user(&others, to, asked->count);
		/* It was another signal, whose handler is about to run. */
		if (!count && outcome)
			count = -EINTR;
	}
	return count;
}

static long sigperfd_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sigperfd *device = file->private_data;
	void __user *user = (void __user *)argument;
	struct sigperfd_wait asked;
	u32 mode;

	switch (command) {
	case SIGPERFD_MODE:
		if (get_user(mode, (u32 __user *)user))
			return -EFAULT;
		return set_mode(device, mode);
	case SIGPERFD_COUNTERS:
		return put_counters(device, user);
	case SIGPERFD_WAIT:
		if (copy_from_user(&asked, user, sizeof(asked)))
			return -EFAULT;
		return wait_for_signals(&asked);
	default:
		return -ENOTTY;
	}
}

static int sigperfd_open(struct inode *inode, struct file *file)
{
	struct sigperfd *device = kzalloc(sizeof(*device), GFP_KERNEL_ACCOUNT);

	if (!device)
		return -ENOMEM;
	file->private_data = device;
	return 0;
}

/* The last reference to the device is gone. A hook on another processor may have its watch still: both are freed later. */
static int sigperfd_release(struct inode *inode, struct file *file)
{
	struct sigperfd *device = file->private_data;

	set_mode(device, SIGPERFD_OFF);
	kfree_rcu(device, rcu);
	return 0;
}

static const struct file_operations sigperfd_operations = {
	.owner = THIS_MODULE,
	.open = sigperfd_open,
	.release = sigperfd_release,
	.unlocked_ioctl = sigperfd_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice sigperfd_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "sigperfd",
	.fops = &sigperfd_operations,
	.mode = 0666,
};

/**
 * struct sigperfd_hook - a tracepoint and what is called there
 * @name: the tracepoint's name
 * @function: what is called
 * @point: the tracepoint, once it is found
 */
struct sigperfd_hook {
	const char *name;
	void *function;
	struct tracepoint *point;
};

static struct sigperfd_hook hooks[] = {
	{ "signal_generate", on_generate },
	{ "sched_process_exit", on_exit },
};

/* for_each_kernel_tracepoint() calls it with each: these two are not exported by name. Process context. */
static void find_point(struct tracepoint *point, void *data)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(point->name, hooks[i].name))
			hooks[i].point = point;
}

/* Removes the hooks before the @count-th, and waits until none of them runs. Process context. */
static void remove_hooks(int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].point, hooks[count].function, NULL);
	tracepoint_synchronize_unregister();
}

static int __init add_hooks(void)
{
	int error = 0;
	int i;

	/* The compiler compares the arguments. */
	check_trace_callback_type_signal_generate(on_generate);
	check_trace_callback_type_sched_process_exit(on_exit);
	for_each_kernel_tracepoint(find_point, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks) && !error; i++)
		error = hooks[i].point ? tracepoint_probe_register(hooks[i].point, hooks[i].function, NULL) :
					 -ENOENT;
	if (error)
		remove_hooks(i - 1);
	return error;
}

static int __init sigperfd_init(void)
{
	int error = guest_only();

	if (error)
		return error;
	error = add_hooks();
	if (error)
		return error;
	error = register_kretprobe(&dequeue_probe);
	if (error)
		goto no_dequeue;
	error = register_kprobe(&send_probe);
	if (error)
		goto no_send;
	error = misc_register(&sigperfd_device);
	if (error)
		goto no_device;
	return 0;

no_device:
	unregister_kprobe(&send_probe);
no_send:
	unregister_kretprobe(&dequeue_probe);
no_dequeue:
	remove_hooks(ARRAY_SIZE(hooks));
	return error;
}

/* No device is open: there is no watch. */
static void __exit sigperfd_exit(void)
{
	misc_deregister(&sigperfd_device);
	unregister_kprobe(&send_probe);
	unregister_kretprobe(&dequeue_probe);
	remove_hooks(ARRAY_SIZE(hooks));
}

module_init(sigperfd_init);
module_exit(sigperfd_exit);
MODULE_DESCRIPTION("One queued signal per descriptor, and sigtimedwait4()");
MODULE_LICENSE("GPL");
