// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/poll for current kernels, after the device that Provos and Lever wrote for Linux 2.2.
 *
 * A set (struct devpoll) has an interest for each descriptor, which watches the file (watch.h says what keeps the file's
 * memory safe). A scan looks the descriptor up in the table of the calling process, and asks the file only if it is the
 * interest's. An interest whose descriptor was closed without telling the device, or is another file now, is dropped.
 *
 * Locks, outermost first: set->mutex (process context), devpoll_global (with DEVPOLL_LOCK), a wait queue's lock, set->lock
 * (any context, interrupts off).
 */
#include <linux/hash.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>

#include "devpoll.h"
#include "guest_only.h"
#include "watch.h"

#define BUCKET_BITS	13
#define MODES		(DEVPOLL_HINTS | DEVPOLL_WALK | DEVPOLL_LOCK | DEVPOLL_READY_LIST)
/* How many entries of a write are copied at a time. */
#define WRITE_BATCH	32
/* The most results of an area: a megabyte of them. */
#define AREA_MOST	(1U << 17)

/* What the big kernel lock was for the original. */
static DEFINE_MUTEX(devpoll_global);

/**
 * struct devpoll - an open /dev/poll
 * @watches: its mutex protects the set, and all but the lists of what has changed
 * @lock: protects @changed and the @on_changed of interests; taken in any context
 * @by_fd: the interests by descriptor
 * @all: the interests in the order in which they are asked
 * @changed: interests whose files have woken their waiters, or were ready when they were asked
 * @generation: grows with each wake-up; a sleep ends when it is another one than before the scan
 * @wait: where callers of DP_POLL sleep
 * @buckets: with DEVPOLL_WALK, the table that scans walk
 * @area: the result area
 * @area_size: how many results it has room for
 * @mode: how scans find what is ready
 * @count: how many interests there are
 * @asked: how many files have been asked
 */
struct devpoll {
	struct watch_set watches;
	spinlock_t lock;
	struct xarray by_fd;
	struct list_head all;
	struct list_head changed;
	unsigned int generation;
	wait_queue_head_t wait;
	struct hlist_head *buckets;
	struct pollfd *area;
	u32 area_size;
	u32 mode;
	u32 count;
	u64 asked;
};

/**
 * struct devpoll_interest - a descriptor of the set
 * @set: the set
 * @watch: of the file that the descriptor was
 * @in_all: in set->all
 * @on_changed: in set->changed, or empty
 * @bucket: in a bucket of set->buckets
 * @fd: the descriptor
 * @events: what is waited for
 */
struct devpoll_interest {
	struct devpoll *set;
	struct watch watch;
	struct list_head in_all;
	struct list_head on_changed;
	struct hlist_node bucket;
	int fd;
	short events;
};

/* Any context. */
static void note_change(struct devpoll_interest *interest)
{
	struct devpoll *set = interest->set;
	unsigned long flags;

	spin_lock_irqsave(&set->lock, flags);
	if (list_empty(&interest->on_changed))
		list_add_tail(&interest->on_changed, &set->changed);
	set->generation++;
	spin_unlock_irqrestore(&set->lock, flags);
	wake_up(&set->wait);
}

/* The file wakes its waiters: any context, with the lock of its wait queue held. */
static void on_woken(struct watch *watch, __poll_t happened)
{
	struct devpoll_interest *interest = container_of(watch, struct devpoll_interest, watch);
	__poll_t wanted = demangle_poll(READ_ONCE(interest->events)) | EPOLLERR | EPOLLHUP | POLLFREE;

	/* A wake-up without a key may mean anything. */
	if (!happened || (happened & wanted))
		note_change(interest);
}

/* The file has been closed: process context, set->mutex held. The next scan drops the interest. */
static void on_closed(struct watch *watch)
{
	note_change(container_of(watch, struct devpoll_interest, watch));
}

/* Frees an interest that is in no list but that of changes. Process context, set->mutex held. */
static void forget(struct devpoll_interest *interest)
{
	watch_detach(&interest->watch);
	/* No wake-up function runs on its behalf any more. */
	spin_lock_irq(&interest->set->lock);
	list_del_init(&interest->on_changed);
	spin_unlock_irq(&interest->set->lock);
	kfree(interest);
}

/* Process context, set->mutex held. */
static void drop(struct devpoll_interest *interest)
{
	struct devpoll *set = interest->set;

	xa_erase(&set->by_fd, interest->fd);
	list_del(&interest->in_all);
	if (set->buckets)
		hlist_del(&interest->bucket);
	set->count--;
	forget(interest);
}

/* What the file is ready for of what is waited for. */
static short wanted_of(const struct devpoll_interest *interest, __poll_t ready)
{
	return mangle_poll(ready & (demangle_poll(interest->events) | EPOLLERR | EPOLLHUP));
}

/* Adds a descriptor. Process context, set->mutex held. */
static int add(struct devpoll *set, int fd, short events)
{
	struct devpoll_interest *interest;
	struct file *file = fget(fd);
	__poll_t ready;
	int error = -ENOMEM;

	if (!file)
		/* As in the original, a descriptor that is not open is no error. */
		return 0;
	interest = kzalloc(sizeof(*interest), GFP_KERNEL_ACCOUNT);
	if (!interest)
		goto put;
	interest->set = set;
	interest->fd = fd;
	interest->events = events;
	INIT_LIST_HEAD(&interest->on_changed);
	error = watch_attach(&set->watches, &interest->watch, file, &ready);
	if (error) {
		forget(interest);
		goto put;
	}
	set->asked++;
	list_add_tail(&interest->in_all, &set->all);
	if (set->buckets)
		hlist_add_head(&interest->bucket, &set->buckets[hash_32(fd, BUCKET_BITS)]);
	set->count++;
	if (wanted_of(interest, ready))
		note_change(interest);
	error = xa_err(xa_store(&set->by_fd, fd, interest, GFP_KERNEL_ACCOUNT));
	if (error)
		drop(interest);
put:
	fput(file);
	return error;
}

/* One entry of a write. Process context, set->mutex held. */
static int put_entry(struct devpoll *set, const struct pollfd *entry)
{
	struct devpoll_interest *interest;

	if (entry->fd < 0)
		return -EBADF;
	interest = xa_load(&set->by_fd, entry->fd);
	if (entry->events & DEVPOLL_REMOVE) {
		if (interest)
			drop(interest);
		return 0;
	}
	if (interest) {
		if (watch_is_of(&interest->watch, entry->fd)) {
			WRITE_ONCE(interest->events, entry->events);
			note_change(interest);
			return 0;
		}
		drop(interest);
	}
	return add(set, entry->fd, entry->events);
}

static ssize_t devpoll_write(struct file *file, const char __user *from, size_t len, loff_t *offset)
{
	struct devpoll *set = file->private_data;
	struct pollfd entries[WRITE_BATCH];
	size_t done = 0;
	int error = 0;

	if (len % sizeof(struct pollfd))
		return -EINVAL;
	mutex_lock(&set->watches.mutex);
	while (done < len && !error) {
		size_t size = min(len - done, sizeof(entries));
		size_t i;

		error = copy_from_user(entries, from + done, size) ? -EFAULT : 0;
		for (i = 0; i < size / sizeof(struct pollfd) && !error; i++) {
			error = put_entry(set, &entries[i]);
			if (!error)
				done += sizeof(struct pollfd);
		}
	}
	mutex_unlock(&set->watches.mutex);
	return done ?: error;
}

/**
 * struct devpoll_results - where results go
 * @area: the mapped area, or NULL
 * @user: the caller's array
 * @most: how many there may be
 * @count: how many there are
 */
struct devpoll_results {
	struct pollfd *area;
	struct pollfd __user *user;
	u32 most;
	u32 count;
};

static int put_result(struct devpoll_results *results, const struct devpoll_interest *interest, short ready)
{
	struct pollfd result = { interest->fd, interest->events, ready };

	if (results->area)
		results->area[results->count] = result;
	else if (copy_to_user(&results->user[results->count], &result, sizeof(result)))
		return -EFAULT;
	results->count++;
	return 0;
}

/*
 * Asks the file of an interest, and adds a result if it is ready. An interest whose descriptor is not its file's any more
 * is dropped. Returns 1 if it was ready. Process context, set->mutex held.
 */
static int look(struct devpoll_interest *interest, struct devpoll_results *results)
{
	struct fd now = fdget(interest->fd);
	short ready = 0;

	if (fd_file(now) && fd_file(now) == interest->watch.file) {
		interest->set->asked++;
		ready = wanted_of(interest, vfs_poll(fd_file(now), NULL));
	} else {
		drop(interest);
	}
	fdput(now);
	if (!ready)
		return 0;
	return put_result(results, interest, ready) ?: 1;
}

/* Asks every file, beginning behind the last result of the scan before. */
static int scan_all(struct devpoll *set, struct devpoll_results *results)
{
	struct devpoll_interest *interest, *next;
	int found = 0;

	list_for_each_entry_safe(interest, next, &set->all, in_all) {
		found = look(interest, results);
		if (found < 0)
			return found;
		if (found && results->count == results->most) {
			/* The list begins behind it. */
			list_move(&set->all, &interest->in_all);
			break;
		}
	}
	return 0;
}

static bool has_changed(struct devpoll_interest *interest)
{
	bool changed;

	spin_lock_irq(&interest->set->lock);
	changed = !list_empty(&interest->on_changed);
	list_del_init(&interest->on_changed);
	spin_unlock_irq(&interest->set->lock);
	return changed;
}

/* Walks over the interests, and asks those files alone that have changed: DEVPOLL_HINTS. */
static int scan_hints(struct devpoll *set, struct devpoll_results *results)
{
	struct devpoll_interest *interest, *next;

	list_for_each_entry_safe(interest, next, &set->all, in_all) {
		int found;

		/* Most have not, and cost no lock. */
		if (list_empty_careful(&interest->on_changed) || !has_changed(interest))
			continue;
		found = look(interest, results);
		if (!found)
			continue;
		/* It may be ready still when the next scan comes, or could not be reported. */
		note_change(interest);
		if (found < 0)
			return found;
		if (results->count == results->most) {
			list_move(&set->all, &interest->in_all);
			break;
		}
	}
	return 0;
}

/* Takes the interests from the list of those that have changed: DEVPOLL_READY_LIST. */
static int scan_changed(struct devpoll *set, struct devpoll_results *results)
{
	struct devpoll_interest *interest;
	LIST_HEAD(still_ready);
	int found = 0;

	while (found >= 0 && results->count < results->most) {
		spin_lock_irq(&set->lock);
		interest = list_first_entry_or_null(&set->changed, struct devpoll_interest, on_changed);
		if (interest)
			list_del_init(&interest->on_changed);
		spin_unlock_irq(&set->lock);
		if (!interest)
			break;
		found = look(interest, results);
		if (!found)
			continue;
		/* It may be ready still when the next scan comes, or could not be reported. */
		spin_lock_irq(&set->lock);
		/* A wake-up since then has put it at the end already. */
		list_move_tail(&interest->on_changed, &still_ready);
		spin_unlock_irq(&set->lock);
	}
	spin_lock_irq(&set->lock);
	list_splice_tail(&still_ready, &set->changed);
	spin_unlock_irq(&set->lock);
	return min(found, 0);
}

/* Walks over the buckets of the table, as a scan over a hash table has to: DEVPOLL_WALK. */
static void walk_buckets(struct devpoll *set)
{
	u32 i, seen = 0;

	for (i = 0; i < 1U << BUCKET_BITS; i++) {
		struct devpoll_interest *interest;

		hlist_for_each_entry(interest, &set->buckets[i], bucket)
			seen++;
	}
	WARN_ON_ONCE(seen != set->count);
}

/* Process context, set->mutex held. */
static int scan(struct devpoll *set, struct devpoll_results *results)
{
	int error;

	if (set->mode & DEVPOLL_LOCK)
		mutex_lock(&devpoll_global);
	if (set->mode & DEVPOLL_WALK)
		walk_buckets(set);
	if (set->mode & DEVPOLL_READY_LIST)
		error = scan_changed(set, results);
	else if (set->mode & DEVPOLL_HINTS)
		error = scan_hints(set, results);
	else
		error = scan_all(set, results);
	if (set->mode & DEVPOLL_LOCK)
		mutex_unlock(&devpoll_global);
	return error;
}

static long do_poll(struct devpoll *set, const struct devpoll_poll *asked)
{
	struct devpoll_results results = { .user = u64_to_user_ptr(asked->results), .most = asked->count };
	ktime_t end, *until = NULL;
	long outcome;

	if (asked->reserved || !asked->count)
		return -EINVAL;
	if (asked->timeout_ns >= 0) {
		end = ktime_add_safe(ktime_get(), asked->timeout_ns);
		until = &end;
	}
	for (;;) {
		unsigned int seen;

		mutex_lock(&set->watches.mutex);
		if (!asked->results) {
			results.area = set->area;
			results.most = min(asked->count, set->area_size);
		}
		seen = READ_ONCE(set->generation);
		outcome = results.most ? scan(set, &results) : -EINVAL;
		mutex_unlock(&set->watches.mutex);
		if (outcome || results.count)
			return outcome ?: results.count;
		if (!asked->timeout_ns)
			return 0;
		outcome = watch_sleep(&set->wait, &set->generation, seen, until);
		if (outcome <= 0)
			return outcome;
	}
}

static long is_polled(struct devpoll *set, struct pollfd __user *user)
{
	struct devpoll_interest *interest;
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

/* Process context, set->mutex held. */
static long alloc_area(struct devpoll *set, u32 size)
{
	struct pollfd *area;

	if (!size || size > AREA_MOST)
		return -EINVAL;
	if (set->area)
		return -EBUSY;
	area = vmalloc_user(array_size(size, sizeof(struct pollfd)));
	if (!area)
		return -ENOMEM;
	set->area_size = size;
	/* devpoll_mmap() has no lock. */
	smp_store_release(&set->area, area);
	return 0;
}

/* Process context, set->mutex held. */
static long set_mode(struct devpoll *set, u32 mode)
{
	if (mode & ~MODES)
		return -EINVAL;
	if (set->count)
		return -EBUSY;
	if ((mode & DEVPOLL_WALK) && !set->buckets) {
		set->buckets = kvcalloc(1U << BUCKET_BITS, sizeof(*set->buckets), GFP_KERNEL_ACCOUNT);
		if (!set->buckets)
			return -ENOMEM;
	}
	set->mode = mode;
	return 0;
}

static long devpoll_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct devpoll *set = file->private_data;
	void __user *user = (void __user *)argument;
	struct devpoll_poll asked;
	long outcome;
	u32 number;
	u64 asked_so_far;

	switch (command) {
	case DP_POLL:
		if (copy_from_user(&asked, user, sizeof(asked)))
			return -EFAULT;
		return do_poll(set, &asked);
	case DP_ISPOLLED:
		return is_polled(set, user);
	case DP_ALLOC:
	case DP_MODE:
		if (get_user(number, (u32 __user *)user))
			return -EFAULT;
		mutex_lock(&set->watches.mutex);
		outcome = command == DP_ALLOC ? alloc_area(set, number) : set_mode(set, number);
		mutex_unlock(&set->watches.mutex);
		return outcome;
	case DP_ASKED:
		mutex_lock(&set->watches.mutex);
		asked_so_far = set->asked;
		mutex_unlock(&set->watches.mutex);
		return put_user(asked_so_far, (u64 __user *)user);
	default:
		return -ENOTTY;
	}
}

static int devpoll_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct devpoll *set = file->private_data;
	/* Without the mutex: who holds it may need the caller's map of memory, to read the entries of a write. */
	struct pollfd *area = smp_load_acquire(&set->area);

	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	return area ? remap_vmalloc_range(vma, area, vma->vm_pgoff) : -EINVAL;
}

static int devpoll_open(struct inode *inode, struct file *file)
{
	struct devpoll *set = kzalloc(sizeof(*set), GFP_KERNEL_ACCOUNT);
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
	INIT_LIST_HEAD(&set->all);
	INIT_LIST_HEAD(&set->changed);
	init_waitqueue_head(&set->wait);
	file->private_data = set;
	return 0;
}

/* The last reference to the device is gone: nobody else has the set but watch_on_close(). */
static int devpoll_release(struct inode *inode, struct file *file)
{
	struct devpoll *set = file->private_data;
	struct devpoll_interest *interest, *next;

	mutex_lock(&set->watches.mutex);
	list_for_each_entry_safe(interest, next, &set->all, in_all)
		drop(interest);
	mutex_unlock(&set->watches.mutex);
	watch_set_destroy(&set->watches);
	xa_destroy(&set->by_fd);
	vfree(set->area);
	kvfree(set->buckets);
	kfree(set);
	return 0;
}

static const struct file_operations devpoll_operations = {
	.owner = THIS_MODULE,
	.open = devpoll_open,
	.release = devpoll_release,
	.write = devpoll_write,
	.unlocked_ioctl = devpoll_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = devpoll_mmap,
	.llseek = noop_llseek,
};

static struct miscdevice devpoll_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "poll",
	.fops = &devpoll_operations,
	.mode = 0666,
};

static int __init devpoll_init(void)
{
	return guest_only() ?: misc_register(&devpoll_device);
}

static void __exit devpoll_exit(void)
{
	misc_deregister(&devpoll_device);
}

module_init(devpoll_init);
module_exit(devpoll_exit);
MODULE_DESCRIPTION("/dev/poll");
MODULE_LICENSE("GPL");
