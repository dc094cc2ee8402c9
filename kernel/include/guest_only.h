/* SPDX-License-Identifier: GPL-2.0 */
/*
 * These modules are for the laboratory: they are loaded in a virtual machine, unless somebody insists.
 */
#ifndef _DROVER_GUEST_ONLY_H
#define _DROVER_GUEST_ONLY_H

#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <asm/cpufeature.h>

static bool force;
module_param(force, bool, 0);
MODULE_PARM_DESC(force, "load outside of a virtual machine too");

/* 0, or the error that module_init() returns. Process context. */
static inline int guest_only(void)
{
	if (force || boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return 0;
	pr_err("%s is for virtual machines; force=1 loads it here\n", KBUILD_MODNAME);
	return -EPERM;
}

#endif
