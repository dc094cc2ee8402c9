/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Watches: entries in the wait queues of files, for devices that are told when a file wakes its waiters.
 *
 * A watch has no reference to its file: the peer of a connection sees the end at once when the descriptor is closed. What
 * keeps the file's memory from being used after it was freed:
 *
 * - An fsnotify mark on the file's inode has watch_on_close() called when a file of that inode is closed for the last
 *   time: in process context, and before the file's own release, which frees its wait queues. It detaches the watches
 *   whose file has no reference left, and tells the device.
 * - A file whose close fsnotify does not tell is refused.
 * - The device compares the file of a watch with that of a descriptor, and asks a file that it has got from a descriptor
 *   alone.
 * - The wake-up functions run with the wait queue's lock held, in any context. They touch what the watch is part of and
 *   the device's set alone. A watch is freed after it has been taken out of all wait queues, which takes their locks.
 *
 * Locks, outermost first: watch_set.mutex (process context), a wait queue's lock, the device's spin lock.
 *
 * Each device is a module of its own, which includes this file once.
 */
#ifndef _DROVER_WATCH_H
#define _DROVER_WATCH_H

#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/wait.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define fd_file(f)	((f).file)
#endif

struct watch;

/**
 * struct watch_set - the watches of an open device
 * @mutex: protects the watches; the device may protect more with it
 * @group: fsnotify's group of this set
 * @woken: the file has woken its waiters for these events, 0: for something: any context, with a wait queue's lock held.
 *	With POLLFREE, that wait queue will not do so again
 * @closed: the file has been closed for the last time; the watch is detached: process context, @mutex held
 */
struct watch_set {
	struct mutex mutex;
	struct fsnotify_group *group;
	void (*woken)(struct watch *watch, __poll_t happened);
	void (*closed)(struct watch *watch);
};

/**
 * struct watch_mark - has a set called when a file of an inode is closed
 * @mark: fsnotify's; it owns this structure
 * @set: the set
 * @watches: those of files of the inode
 */
struct watch_mark {
	struct fsnotify_mark mark;
	struct watch_set *set;
	struct list_head watches;
};

/**
 * struct watch - the entries in the wait queues of a file
 * @set: the set
 * @file: which file it is, to compare; no reference; NULL when it is detached
 * @mark: of the file's inode; NULL when it is detached
 * @by_mark: in mark->watches
 * @entries: in the wait queues of the file
 * @failed: an entry could not be allocated
 */
struct watch {
	struct watch_set *set;
	struct file *file;
	struct watch_mark *mark;
	struct list_head by_mark;
	struct list_head entries;
	bool failed;
};

/**
 * struct watch_entry - an entry in a wait queue
 * @entry: the entry
 * @head: the queue; NULL when it is about to be freed
 * @watch: on whose behalf
 * @next: in watch->entries
 */
struct watch_entry {
	wait_queue_entry_t entry;
	wait_queue_head_t *head;
	struct watch *watch;
	struct list_head next;
};

struct watch_queueing {
	poll_table table;
	struct watch *watch;
};

/* The file wakes its waiters: any context, with the lock of its wait queue held. */
static int watch_on_wake(wait_queue_entry_t *entry, unsigned int mode, int sync, void *key)
{
	struct watch_entry *own = container_of(entry, struct watch_entry, entry);
	struct watch *watch = own->watch;
	__poll_t happened = key_to_poll(key);

	watch->set->woken(watch, happened);
	if (happened & POLLFREE) {
		/*
		 * The queue is freed before its file: nobody may take its lock from now on. Whoever detaches the watch
		 * need not wait for that lock once the head is gone, and frees both.
		 */
		list_del_init(&entry->entry);
		/* Pairs with the acquire in watch_detach(): who finds NULL finds the entry out of the queue. */
		smp_store_release(&own->head, NULL);
	}
	return 1;
}

/* vfs_poll() names a wait queue of the file. Process context, set->mutex held. */
static void watch_queue(struct file *file, wait_queue_head_t *head, poll_table *table)
{
	struct watch *watch = container_of(table, struct watch_queueing, table)->watch;
	struct watch_entry *own = kmalloc(sizeof(*own), GFP_KERNEL_ACCOUNT);

	if (!own) {
		watch->failed = true;
		return;
	}
	init_waitqueue_func_entry(&own->entry, watch_on_wake);
	own->head = head;
	own->watch = watch;
	list_add(&own->next, &watch->entries);
	add_wait_queue(head, &own->entry);
}

/*
 * Takes the watch out of the file's wait queues; once it has returned, woken() is not called any more. Process context,
 * set->mutex held; the file has not been released, or the watch is detached already.
 */
static void watch_detach(struct watch *watch)
{
	struct watch_entry *own, *next;

	list_for_each_entry_safe(own, next, &watch->entries, next) {
		wait_queue_head_t *head;

		/* RCU keeps a queue's memory from POLLFREE on until the entry is out (see watch_on_wake()). */
		rcu_read_lock();
		/* Pairs with the release in watch_on_wake(). */
		head = smp_load_acquire(&own->head);
		if (head)
			remove_wait_queue(head, &own->entry);
		rcu_read_unlock();
		list_del(&own->next);
		kfree(own);
	}
	if (watch->mark) {
		list_del(&watch->by_mark);
		/* A mark keeps its inode. */
		if (list_empty(&watch->mark->watches))
			fsnotify_destroy_mark(&watch->mark->mark, watch->set->group);
		fsnotify_put_mark(&watch->mark->mark);
		watch->mark = NULL;
	}
	watch->file = NULL;
}

/*
 * A file of the mark's inode has been closed for the last time: process context, before its release. Of several files of
 * one inode, those are closed that have no reference left; whoever closes them may be about to call this function too.
 */
static int watch_on_close(struct fsnotify_mark *mark, u32 mask, struct inode *inode, struct inode *dir,
			  const struct qstr *name, u32 cookie)
{
	struct watch_mark *own = container_of(mark, struct watch_mark, mark);
	struct watch_set *set = own->set;
	struct watch *watch, *next;

	mutex_lock(&set->mutex);
	list_for_each_entry_safe(watch, next, &own->watches, by_mark) {
		if (file_count(watch->file))
			continue;
		watch_detach(watch);
		set->closed(watch);
	}
	mutex_unlock(&set->mutex);
	return 0;
}

static void watch_free_mark(struct fsnotify_mark *mark)
{
	kfree(container_of(mark, struct watch_mark, mark));
}

static const struct fsnotify_ops watch_fsnotify = {
	.handle_inode_event = watch_on_close,
	.free_mark = watch_free_mark,
};

static struct fsnotify_mark *watch_find_mark(struct watch_set *set, struct inode *inode)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	return fsnotify_find_mark(&inode->i_fsnotify_marks, set->group);
#else
	return fsnotify_find_inode_mark(inode, set->group);
#endif
}

/* The mark of the set on an inode, with a reference for the caller. Process context, set->mutex held. */
static struct watch_mark *watch_mark_of(struct watch_set *set, struct inode *inode)
{
	struct fsnotify_mark *found = watch_find_mark(set, inode);
	struct watch_mark *mark;
	int error;

	if (found)
		return container_of(found, struct watch_mark, mark);
	mark = kzalloc(sizeof(*mark), GFP_KERNEL_ACCOUNT);
	if (!mark)
		return ERR_PTR(-ENOMEM);
	fsnotify_init_mark(&mark->mark, set->group);
	mark->mark.mask = FS_CLOSE_WRITE | FS_CLOSE_NOWRITE;
	mark->set = set;
	INIT_LIST_HEAD(&mark->watches);
	error = fsnotify_add_inode_mark(&mark->mark, inode, 0);
	if (error) {
		fsnotify_put_mark(&mark->mark);
		return ERR_PTR(error);
	}
	return mark;
}

/*
 * Begins to watch a file, which the caller keeps meanwhile, so that no close can come before the mark. Returns an error,
 * after which the watch is detached, or 0 with what the file is ready for. Process context, set->mutex held.
 */
static int watch_attach(struct watch_set *set, struct watch *watch, struct file *file, __poll_t *ready)
{
	struct watch_queueing queueing = { .watch = watch };
	struct watch_mark *mark;

	watch->set = set;
	watch->file = NULL;
	watch->mark = NULL;
	watch->failed = false;
	INIT_LIST_HEAD(&watch->entries);
	/* fsnotify_close() says nothing of such a file. */
	if (file->f_mode & FMODE_NONOTIFY)
		return -EPERM;
	mark = watch_mark_of(set, file_inode(file));
	if (IS_ERR(mark))
		return PTR_ERR(mark);
	watch->file = file;
	watch->mark = mark;
	list_add(&watch->by_mark, &mark->watches);
	init_poll_funcptr(&queueing.table, watch_queue);
	*ready = vfs_poll(file, &queueing.table);
	if (!watch->failed)
		return 0;
	watch_detach(watch);
	return -ENOMEM;
}

/* Whether the descriptor of the calling process is the file of the watch. */
static bool watch_is_of(const struct watch *watch, int fd)
{
	struct fd now = fdget(fd);
	bool is_same = fd_file(now) && fd_file(now) == watch->file;

	fdput(now);
	return is_same;
}

/* Process context; the set is not shared yet. */
static int watch_set_init(struct watch_set *set)
{
	set->group = fsnotify_alloc_group(&watch_fsnotify, 0);
	if (IS_ERR(set->group))
		return PTR_ERR(set->group);
	mutex_init(&set->mutex);
	return 0;
}

/* All watches are detached, and nobody else has the set but watch_on_close(): waits until it has ended. Process context. */
static void watch_set_destroy(struct watch_set *set)
{
	fsnotify_wait_marks_destroyed();
	fsnotify_put_group(set->group);
}

/*
 * Sleeps until *counter is another number than seen, a signal comes, or the time is over (NULL: never). Returns 1 if it is
 * another number, 0 if the time is over, and else -EINTR. Whoever changes the counter wakes the queue. Process context.
 */
static int watch_sleep(wait_queue_head_t *head, const unsigned int *counter, unsigned int seen, ktime_t *end)
{
	DEFINE_WAIT(wait);
	bool is_over = false;

	for (;;) {
		prepare_to_wait(head, &wait, TASK_INTERRUPTIBLE);
		if (READ_ONCE(*counter) != seen || is_over || signal_pending(current))
			break;
		if (!schedule_hrtimeout_range(end, 0, HRTIMER_MODE_ABS))
			is_over = true;
	}
	finish_wait(head, &wait);
	if (READ_ONCE(*counter) != seen)
		return 1;
	return is_over ? 0 : -EINTR;
}

#endif
