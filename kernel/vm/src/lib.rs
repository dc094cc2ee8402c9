//! Debian's kernels in an emulated machine, with the modules of `kernel/` and programs of this project.
//!
//! 1. [`tools`] are there; [`packages`] finds a kernel and its headers in apt's sources, and unpacks them; nothing is installed.
//! 2. [`modules`] builds the modules against the headers.
//! 3. [`initramfs`] packs modules, programs with their libraries, and a script into the guest's only file system.
//! 4. [`boot`] starts QEMU without KVM, and judges the run by what the guest says on its serial line.
//!
//! **What it is not.** No isolation for untrusted code, and no place for timings: the guest is emulated, and its clock is
//! the emulator's. Counts of events and of instructions ([`boot::Machine::counts_instructions`]) are exact.
#![forbid(unsafe_code)]

pub mod boot;
pub mod cargo;
pub mod counts;
pub mod initramfs;
pub mod modules;
pub mod packages;
pub mod resident;
pub mod run;
pub mod tools;
