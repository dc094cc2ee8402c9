// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/epoll for current kernels, after the device that Davide Libenzi wrote for Linux 2.4: the first epoll.
 *
 * A set (struct devepoll) has an interest for each descriptor, which watches the file (watch.h says what keeps the file's
 * memory safe). When the file wakes its waiters, the wake-up function itself writes a result, into one of two arrays that
 * the process has mapped. EP_POLL makes the other array the one that is written, and asks no file.
 *
 * A file has one slot of an array at most: a later wake-up adds its events there. Since there are no more interests than
 * slots, and an interest that goes gives its slot back, a slot is always free: the arrays cannot overflow.
 *
 * An interest knows whether its slot is of the array that is being written by the number of the turn. So EP_POLL need not
 * tell all interests that the arrays are exchanged.
 *
 * Locks, outermost first: set->watches.mutex (process context, never held while the caller's memory is touched, since
 * devepoll_mmap() takes it with the memory map locked), a wait queue's lock, set->lock (any context, interrupts off).
 */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>

#include "devepoll.h"
#include "guest_only.h"
#include "watch.h"

/* How many entries of a write are copied at a time. */
#define WRITE_BATCH		32
#define SLOTS_PER_PAGE		(PAGE_SIZE / sizeof(struct pollfd))

/**
 * struct devepoll - an open /dev/epoll
 * @watches: its mutex protects the set, and the arrays from being freed
 * @lock: protects @turn, @filled, @owners' content, the written array, and the slots of interests; any context
 * @by_fd: the interests by descriptor
 * @count: how many there are
 * @area: both arrays, the second behind the first; NULL before EP_ALLOC
 * @owners: whose each slot of the array is that is being written
 * @slots: how many slots an array has
 * @turn: how often the arrays have been exchanged; the array that is being written is the first when it is even
 * @filled: how many slots of that array are in use
 * @mapped: how many mappings there are of @area
 * @wait: where callers of EP_POLL sleep
 */
struct devepoll {
	struct watch_set watches;
	spinlock_t lock;
	struct xarray by_fd;
	u32 count;
	struct pollfd *area;
	struct devepoll_interest **owners;
	u32 slots;
	u64 turn;
	unsigned int filled;
	atomic_t mapped;
	wait_queue_head_t wait;
};

/**
 * struct devepoll_interest - a descriptor of the set
 * @set: the set
 * @watch: of the file that the descriptor was when it was added
 * @turn: the turn in which it got a slot last
 * @slot: which one
 * @fd: the descriptor
 * @events: what is waited for
 */
struct devepoll_interest {
	struct devepoll *set;
	struct watch watch;
	u64 turn;
	u32 slot;
	int fd;
	short events;
};

/* A slot of the array that is being written. Any context, set->lock held. */
static struct pollfd *slot_of(struct devepoll *set, u32 slot)
{
	return &set->area[(set->turn & 1 ? set->slots : 0) + slot];
}

/* Adds events to the slot of an interest, which gets one if it has none. Any context, set->lock held. */
static void report(struct devepoll_interest *interest, short events)
{
	struct devepoll *set = interest->set;

	if (interest->turn != set->turn) {
		if (WARN_ON_ONCE(set->filled == set->slots))
			return;
		interest->turn = set->turn;
		interest->slot = set->filled;
		set->owners[interest->slot] = interest;
		*slot_of(set, interest->slot) = (struct pollfd){ interest->fd, interest->events, 0 };
		WRITE_ONCE(set->filled, set->filled + 1);
	}
	slot_of(set, interest->slot)->revents |= events;
}

/* Gives back the slot of an interest that goes, if it has one: the last one takes its place. Any context, set->lock held. */
static void forget_report(struct devepoll_interest *interest)
{
	struct devepoll *set = interest->set;
	u32 last = set->filled - 1;

	if (interest->turn != set->turn)
		return;
	if (interest->slot != last) {
		*slot_of(set, interest->slot) = *slot_of(set, last);
		set->owners[interest->slot] = set->owners[last];
		set->owners[interest->slot]->slot = interest->slot;
	}
	WRITE_ONCE(set->filled, last);
}

/* The file wakes its waiters: any context, with the lock of its wait queue held. */
static void on_woken(struct watch *watch, __poll_t happened)
{
	struct devepoll_interest *interest = container_of(watch, struct devepoll_interest, watch);
	struct devepoll *set = interest->set;
	unsigned long flags;
	short events;

	spin_lock_irqsave(&set->lock, flags);
	/* A wake-up without a key may mean anything. The file cannot be asked here: it may need locks that its waker holds. */
	events = interest->events & (happened ? mangle_poll(happened) : ~(POLLERR | POLLHUP));
	if (events)
		report(interest, events);
	spin_unlock_irqrestore(&set->lock, flags);
	if (events && wq_has_sleeper(&set->wait))
		wake_up(&set->wait);
}

/* Takes an interest out of the set. Process context, set->watches.mutex held. */
static void drop(struct devepoll_interest *interest)
{
	struct devepoll *set = interest->set;

	watch_detach(&interest->watch);
	/* No wake-up function runs on its behalf any more. */
	spin_lock_irq(&set->lock);
	forget_report(interest);
	spin_unlock_irq(&set->lock);
	if (xa_load(&set->by_fd, interest->fd) == interest)
		xa_erase(&set->by_fd, interest->fd);
	set->count--;
	kfree(interest);
}

/* The file has been closed: process context, set->watches.mutex held. */
static void on_closed(struct watch *watch)
{
	drop(container_of(watch, struct devepoll_interest, watch));
}

/*
 * Adds a descriptor. What the file is ready for now is not reported: only its wake-ups from now on are. Process context,
 * set->watches.mutex held.
 */
static int add(struct devepoll *set, int fd, short events)
{
	struct devepoll_interest *interest;
	struct file *file;
	__poll_t ready;
	int error;

	if (set->count == set->slots)
		return -ENOSPC;
	file = fget(fd);
	if (!file)
		return -EBADF;
	error = -EPERM;
	if (!file_can_poll(file))
		goto put;
	error = -ENOMEM;
	interest = kzalloc(sizeof(*interest), GFP_KERNEL_ACCOUNT);
	if (!interest)
		goto put;
	interest->set = set;
	interest->fd = fd;
	interest->events = events;
	/* Another turn than this one, and than any that comes. */
	interest->turn = U64_MAX;
	set->count++;
	error = watch_attach(&set->watches, &interest->watch, file, &ready);
	if (!error)
		error = xa_err(xa_store(&set->by_fd, fd, interest, GFP_KERNEL_ACCOUNT));
	if (error)
		drop(interest);
put:
	fput(file);
	return error;
}

/* One entry of a write. Process context, set->watches.mutex held. */
static int put_entry(struct devepoll *set, const struct pollfd *entry)
{
	struct devepoll_interest *interest;

	if (!set->area)
		return -EINVAL;
	if (entry->fd < 0)
		return -EBADF;
	interest = xa_load(&set->by_fd, entry->fd);
	if (entry->events & DEVEPOLL_REMOVE) {
		if (interest)
			drop(interest);
		return 0;
	}
	if (interest) {
		if (watch_is_of(&interest->watch, entry->fd)) {
			spin_lock_irq(&set->lock);
			interest->events = entry->events;
			spin_unlock_irq(&set->lock);
			return 0;
		}
		drop(interest);
	}
	return add(set, entry->fd, entry->events);
}

/* Process context. */
static ssize_t devepoll_write(struct file *file, const char __user *from, size_t len, loff_t *offset)
{
	struct devepoll *set = file->private_data;
	struct pollfd entries[WRITE_BATCH];
	size_t done = 0;
	int error = 0;

	if (len % sizeof(struct pollfd))
		return -EINVAL;
	while (done < len && !error) {
		size_t size = min(len - done, sizeof(entries));
		size_t i;

		if (copy_from_user(entries, from + done, size))
			return done ?: -EFAULT;
		mutex_lock(&set->watches.mutex);
		for (i = 0; i < size / sizeof(struct pollfd) && !error; i++) {
			error = put_entry(set, &entries[i]);
			if (!error)
				done += sizeof(struct pollfd);
		}
		mutex_unlock(&set->watches.mutex);
	}
	return done ?: error;
}

/* Exchanges the arrays if there are results. Returns how many, and sets where they are. Process context. */
static u32 take_results(struct devepoll *set, u64 *offset)
{
	u32 taken;

	spin_lock_irq(&set->lock);
	taken = set->filled;
	if (taken) {
		*offset = set->turn & 1 ? set->slots * sizeof(struct pollfd) : 0;
		set->turn++;
		WRITE_ONCE(set->filled, 0);
	}
	spin_unlock_irq(&set->lock);
	return taken;
}

/* Process context. */
static long do_poll(struct devepoll *set, struct devepoll_poll __user *user)
{
	struct devepoll_poll asked;
	ktime_t end, *until = NULL;
	u32 taken;
	int error;

	if (copy_from_user(&asked, user, sizeof(asked)))
		return -EFAULT;
	/* As in the original, whoever cannot see the results gets none. */
	if (!atomic_read(&set->mapped))
		return -EINVAL;
	if (asked.timeout_ns >= 0) {
		end = ktime_add_safe(ktime_get(), asked.timeout_ns);
		until = &end;
	}
	for (;;) {
		taken = take_results(set, &asked.ep_resoff);
		if (taken || !asked.timeout_ns)
			break;
		error = watch_sleep(&set->wait, &set->filled, 0, until);
		if (error <= 0)
			return error;
	}
	if (taken && put_user(asked.ep_resoff, &user->ep_resoff))
		return -EFAULT;
	return taken;
}

/* Process context. */
static long is_polled(struct devepoll *set, struct pollfd __user *user)
{
	struct devepoll_interest *interest;
	struct pollfd entry;

	if (copy_from_user(&entry, user, sizeof(entry)))
		return -EFAULT;
	mutex_lock(&set->watches.mutex);
	interest = entry.fd < 0 ? NULL : xa_load(&set->by_fd, entry.fd);
	entry.revents = interest ? interest->events : 0;
	mutex_unlock(&set->watches.mutex);
	if (copy_to_user(user, &entry, sizeof(entry)))
		return -EFAULT;
	return !!interest;
}

/* Process context, set->watches.mutex held. */
static long alloc_area(struct devepoll *set, u32 slots)
{
	if (!slots || slots > DEVEPOLL_MOST)
		return -EINVAL;
	if (set->area)
		return -EBUSY;
	slots = roundup(slots, SLOTS_PER_PAGE);
	set->owners = kvcalloc(slots, sizeof(*set->owners), GFP_KERNEL_ACCOUNT);
	set->area = vmalloc_user(2 * array_size(slots, sizeof(struct pollfd)));
	if (!set->owners || !set->area) {
		kvfree(set->owners);
		vfree(set->area);
		set->owners = NULL;
		set->area = NULL;
		return -ENOMEM;
	}
	set->slots = slots;
	return 0;
}

/* Empties the set, and frees the arrays, which are not mapped. Process context, set->watches.mutex held. */
static void free_area(struct devepoll *set)
{
	struct devepoll_interest *interest;
	unsigned long fd;

	xa_for_each(&set->by_fd, fd, interest)
		drop(interest);
	kvfree(set->owners);
	vfree(set->area);
	set->owners = NULL;
	set->area = NULL;
	set->slots = 0;
}

/* Process context, set->watches.mutex held. */
static long try_free_area(struct devepoll *set)
{
	if (!set->area)
		return -EINVAL;
	if (atomic_read(&set->mapped))
		return -EBUSY;
	free_area(set);
	return 0;
}

static long devepoll_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct devepoll *set = file->private_data;
	void __user *user = (void __user *)argument;
	u32 slots = 0;
	long outcome;

	switch (command) {
	case EP_POLL:
		return do_poll(set, user);
	case EP_ISPOLLED:
		return is_polled(set, user);
	case EP_ALLOC:
	case EP_FREE:
		if (command == EP_ALLOC && get_user(slots, (u32 __user *)user))
			return -EFAULT;
		mutex_lock(&set->watches.mutex);
		outcome = command == EP_ALLOC ? alloc_area(set, slots) : try_free_area(set);
		mutex_unlock(&set->watches.mutex);
		return outcome;
	default:
		return -ENOTTY;
	}
}

/* A mapping is copied, by fork(2) or in parts: the memory map is locked. */
static void mapping_open(struct vm_area_struct *vma)
{
	struct devepoll *set = vma->vm_file->private_data;

	atomic_inc(&set->mapped);
}

/* A mapping ends: the memory map is locked. Its pages stay until then, since it has references to them. */
static void mapping_close(struct vm_area_struct *vma)
{
	struct devepoll *set = vma->vm_file->private_data;

	atomic_dec(&set->mapped);
}

static const struct vm_operations_struct mapping_operations = {
	.open = mapping_open,
	.close = mapping_close,
};

/* Both arrays, whole, and to be read alone: the kernel goes on with what it has written there. The memory map is locked. */
static int devepoll_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct devepoll *set = file->private_data;
	size_t size;
	int error;

	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	mutex_lock(&set->watches.mutex);
	size = 2 * set->slots * sizeof(struct pollfd);
	if (!set->area || vma->vm_pgoff || vma->vm_end - vma->vm_start != size)
		error = -EINVAL;
	else
		error = remap_vmalloc_range(vma, set->area, 0);
	if (!error) {
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
		vma->vm_flags &= ~VM_MAYWRITE;
#else
		vm_flags_clear(vma, VM_MAYWRITE);
#endif
		vma->vm_ops = &mapping_operations;
		atomic_inc(&set->mapped);
	}
	mutex_unlock(&set->watches.mutex);
	return error;
}

static int devepoll_open(struct inode *inode, struct file *file)
{
	struct devepoll *set = kzalloc(sizeof(*set), GFP_KERNEL_ACCOUNT);
	int error;

	if (!set)
		return -ENOMEM;
	error = watch_set_init(&set->watches);
	if (error) {
		kfree(set);
		return error;
	}
	set->watches.woken = on_woken;
	set->watches.closed = on_closed;
	spin_lock_init(&set->lock);
	xa_init(&set->by_fd);
	init_waitqueue_head(&set->wait);
	file->private_data = set;
	return 0;
}

/* The last reference to the device is gone, and with it all mappings: nobody else has the set but watch_on_close(). */
static int devepoll_release(struct inode *inode, struct file *file)
{
	struct devepoll *set = file->private_data;

	mutex_lock(&set->watches.mutex);
	free_area(set);
	mutex_unlock(&set->watches.mutex);
	watch_set_destroy(&set->watches);
	xa_destroy(&set->by_fd);
	kfree(set);
	return 0;
}

/* Without poll(): a /dev/epoll cannot be in the set of another, and no wake-up goes in circles. */
static const struct file_operations devepoll_operations = {
	.owner = THIS_MODULE,
	.open = devepoll_open,
	.release = devepoll_release,
	.write = devepoll_write,
	.unlocked_ioctl = devepoll_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = devepoll_mmap,
	.llseek = noop_llseek,
};

static struct miscdevice devepoll_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "epoll",
	.fops = &devepoll_operations,
	.mode = 0666,
};

static int __init devepoll_init(void)
{
	return guest_only() ?: misc_register(&devepoll_device);
}

static void __exit devepoll_exit(void)
{
	misc_deregister(&devepoll_device);
}

module_init(devepoll_init);
module_exit(devepoll_exit);
MODULE_DESCRIPTION("/dev/epoll");
MODULE_LICENSE("GPL");
